//! Errors of the engine as gRPC's codes, with the details that clients can read.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::v1;
use crate::engine::Refused;
use crate::task::TaskError;

/// When a caller may try again to put a task while there is no room.
const AGAIN: Duration = Duration::from_secs(1);

/// The kind of resource that is not found.
const TASK: &str = "wheelhouse.v1.Task";

/// A call that was refused as a whole.
pub(super) fn status(refused: &Refused) -> Status {
    let details = match refused {
        Refused::Task(TaskError::Field { field, .. }) => {
            ErrorDetails::with_bad_request_violation(*field, refused.to_string())
        }
        Refused::NotFound(key) => {
            ErrorDetails::with_resource_info(TASK, key.as_str(), "", refused.to_string())
        }
        Refused::UnderWay(key) => ErrorDetails::with_precondition_failure_violation(
            "UNDER_WAY",
            key.as_str(),
            refused.to_string(),
        ),
        Refused::Full(_) => ErrorDetails::with_retry_info(Some(AGAIN)),
        _ => ErrorDetails::new(),
    };
    Status::with_error_details(code(refused), refused.to_string(), details)
}

/// One operation of many that was refused.
pub(super) fn failure(refused: &Refused) -> v1::Failure {
    let field = match refused {
        Refused::Task(TaskError::Field { field, .. }) => *field,
        _ => "",
    };
    v1::Failure {
        code: code(refused).into(),
        message: refused.to_string(),
        field: field.to_owned(),
    }
}

/// The end of a stream that the server does not go on with.
pub(super) fn stopping() -> Status {
    status(&Refused::Stopping)
}

fn code(refused: &Refused) -> Code {
    match refused {
        Refused::Task(_) => Code::InvalidArgument,
        Refused::NotFound(_) => Code::NotFound,
        Refused::UnderWay(_) => Code::FailedPrecondition,
        Refused::Full(_) => Code::ResourceExhausted,
        Refused::Stopping => Code::Unavailable,
    }
}
