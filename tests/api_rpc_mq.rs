//! The example of an API, an RPC service and a consumer, as a process: this program, called again.

#[path = "../examples/api_rpc_mq.rs"]
mod api_rpc_mq;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// Set in the process that is the example.
const AS_EXAMPLE: &str = "WHEELHOUSE_AS_EXAMPLE";

fn main() -> ExitCode {
    if std::env::var_os(AS_EXAMPLE).is_some() {
        return api_rpc_mq::main();
    }
    let trials = [
        (
            "services_end_in_reverse_and_no_order_is_lost",
            orders as fn(),
        ),
        ("wrong_options_are_refused", wrong_options),
    ]
    .map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn example(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(std::env::current_exe().expect("it runs"))
        .args(arguments)
        .env(AS_EXAMPLE, "1")
        .output()
        .expect("it can be called again");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn orders() {
    let (code, stdout, stderr) = example(&["--for", "300ms"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("the shop was SERVING\n"),
        "before the end: {stdout}"
    );
    let at = |line: &str| {
        let found = stderr.lines().position(|it| it == line);
        found.unwrap_or_else(|| panic!("no line {line} in {stderr}"))
    };
    let ended =
        ["client", "api", "mq", "store"].map(|it| at(&format!("service={it} state=exited")));
    assert!(ended.is_sorted(), "{stderr}");
    assert!(at("service=rpc state=exited") < at("service=store state=stopping"));
    let reason = if cfg!(unix) { "sigterm" } else { "handle" };
    let last = format!("report exit_code=0 outcome=stopped reason={reason} failed=- abandoned=- ");
    let printed = stdout.lines().last().expect("a report");
    assert!(printed.starts_with(&last), "{printed}");
    assert_eq!(stderr.lines().last(), Some(printed));

    // The ledger of the queue, and what the store has seen of it.
    let line = stdout.lines().find(|it| it.starts_with("orders="));
    let numbers: Vec<u64> = line
        .expect("a ledger")
        .split(['=', ' '])
        .filter_map(|it| it.parse().ok())
        .collect();
    let [orders, shipped, pending] = numbers[..] else {
        panic!("{stdout}");
    };
    assert_eq!(orders, shipped + pending);
    assert!(shipped > 0, "{stdout}");
    let closed = format!("store closed: {orders} orders, {shipped} shipped\n");
    assert!(stdout.contains(&closed), "{stdout}");
}

fn wrong_options() {
    for arguments in [&["--for"][..], &["--for", "ever"], &["-x"]] {
        let (code, _, stderr) = example(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
