package defects

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	roce "github.com/fabrictest/fabrictest/emu/softroce/engine"
)

// RoCE are the defects of soft-RoCE: those of Linux's rxe.
var RoCE = Table[roce.Policy]{
	{"InvalidateAcked", "R22", "a failed remote invalidate is acknowledged", "AckFailedInvalidate", true},
	{"InvalidatePanics", "R23", "invalidating a free window kills the device", "UnboundInvalidateFatal", true},
	{"NoRdAtomicLimit", "R28", "excess READs and atomics are executed and overwrite replay memory", "ReplaceUnanswered", true},
	{"SeqNAKAfterRNR", "R29", "a sequence NAK follows an RNR NAK", "SeqNAKAfterRNR", true},
	{"LongSendIsOpError", "R32", "a SEND beyond the receive buffer is NAKed as operational error", "LongSendOperational", true},
	{"FailedImmConsumes", "R33", "a refused WRITE with immediate uses up a receive", "ClaimBeforeAccessCheck", true},
	{"SubReadContinues", "R40", "a retried part of a READ is answered MIDDLE, LAST, and earlier parts are then lost", "ContinuePartialRead", true},
	{"NoLengthChecks", "R43", "wrong lengths of packets of SENDs are accepted", "AnySendLength", true},
	{"DupReadWaits", "R46", "an earlier duplicate READ waits for the response to a later one", "RepeatsLast", true},
	{"StaleAckBreaksRead", "R17", "an old ACK among READ responses completes the READ with data missing", "StaleAckEndsRead", true},
	{"AckCompletesRead", "R18", "a plain ACK completes a READ", "AckCompletesReads", true},
	{"BadRespSucceeds", "R19", "malformed responses complete the work request with success", "BadResponseCompletes", true},
	{"ShortReadHangs", "R20", "a short READ response stalls the queue for good", "ShortResponseStops", true},
	{"LocalErrFlushesAll", "R25", "a local error flushes earlier requests and loses its cause", "LocalErrors", roce.LocalErrorFlushes},
	{"LocalErrIsQPOp", "R25", "a local error is reported as an operation error, and not at all after unanswered requests", "LocalErrors", roce.LocalErrorQPOp},
	{"RetryCount7Forever", "R26", "retry_cnt 7 never gives up", "UnlimitedRetries", true},
	{"IgnoreSecondNAK", "R30", "a second NAK in one window is ignored", "OneNAKPerWindow", true},
	{"GhostAckCompletes", "R31", "a response with a PSN that was never sent completes all outstanding requests", "UnsentPSNAcksAll", true},
	{"RNRTimerTypo", "R42", "RNR timer code 25 is 61.41 ms", "RNRCode25", 61410 * time.Microsecond},
	{"JiffyTimers", "R42", "all timers are multiples of 4 ms", "TimerGranularity", 4 * time.Millisecond},
	{"NAKInReadSucceeds", "rc/read/19, rxe 6.1", "a NAK among the responses completes the READ with success", "NAKCompletesRead", true},
	{"WrongOpKillsQP", "R37", "an operation that the transport does not support is accepted, and fails the QP when it is executed", "CheckOpcodeLate", true},
	{"SQDNoResume", "R38", "leaving SQD does not resume the send queue", "ResumeOnPost", true},
	{"BindForeignRegion", "rxe, mw/4", "a type 2 window is bound to a region of another domain", "Shared.BindAcrossPDs", true},
	{"PathMTUUnchecked", "rxe, rc/mtu/1", "a path MTU above that of the port is accepted", "PathMTUAbovePort", true},
	{"PrivilegedQKey", "R36", "a Q_Key with the high bit set is sent as posted", "PrivilegedQKeySent", true},
	{"UCLosesNext", "R39", "the first good UC message after a damaged one is lost too", "SkipAfterGap", true},
	{"UDLongKillsQP", "R43", "a datagram longer than the receive buffer moves the QP to ERR", "LongDatagramFatal", true},
	{"UCErrorIsFatal", "uc/9, rxe", "a local error moves a UC QP to ERR", "UCErrorFatal", true},
}

// Manager are the defects of soft-RoCE's connection manager.
var Manager = Table[cm.Config]{
	{"cm.IgnoreCommEst", "", "data that arrives does not replace a lost RTU", "RequireRTU", true},
}
