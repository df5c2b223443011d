package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Policy has the decisions in which real devices differ. The zero value follows the specification.
type Policy struct {
	RequesterPolicy
	ResponderPolicy
	QPPolicy
	// Shared is the policy of memory and completion queues.
	Shared nic.Policy
}

// RequesterPolicy is the policy of requester and completer.
type RequesterPolicy struct {
	// TimerGranularity is the tick of the device's clock. Timers are rounded up to it.
	TimerGranularity time.Duration
	// RNRCode25 is the delay of RNR timer code 25, if it is not that of the table.
	RNRCode25 time.Duration
	// UnlimitedRetries gives a retry_cnt of 7 the meaning of an rnr_retry of 7: no limit.
	UnlimitedRetries bool
	// OneNAKPerWindow ignores sequence NAKs until all packets that were sent before the last
	// one are acknowledged.
	OneNAKPerWindow bool
	// AckCompletesReads lets an ACK of a READ's or atomic's last PSN stand for its response.
	AckCompletesReads bool
	// StaleAckEndsRead completes a READ with a partial response when an ACK of an earlier
	// PSN arrives, and fails the QP.
	StaleAckEndsRead bool
	// UnsentPSNAcksAll lets a response to a PSN that was not sent acknowledge all requests.
	UnsentPSNAcksAll bool
	// BadResponseCompletes completes a request with a malformed response, and all before it,
	// with success, and fails the QP.
	BadResponseCompletes bool
	// ShortResponseStops stops the send queue for good when a READ response is too short.
	ShortResponseStops bool
	// NAKCompletesRead lets a NAK complete a partly answered READ with success and fail the QP.
	NAKCompletesRead bool
	// LocalErrors selects how a local error of a send request is reported.
	LocalErrors LocalErrors
	// UCErrorFatal moves a UC QP to ERR after a local error, not to SQE.
	UCErrorFatal bool
	// PrivilegedQKeySent sends a posted Q_Key with the high bit set, instead of the QP's.
	PrivilegedQKeySent bool
}

// LocalErrors selects how a local error of a send request is reported.
type LocalErrors uint8

const (
	// LocalErrorOrdered completes the request with its error after all earlier requests.
	LocalErrorOrdered LocalErrors = iota
	// LocalErrorFlushes fails the QP at once: all requests are flushed.
	LocalErrorFlushes
	// LocalErrorQPOp completes the request with LOC_QP_OP_ERR. If earlier requests are
	// unacknowledged, the send queue stops instead.
	LocalErrorQPOp
)

// ResponderPolicy is the policy of the responder.
type ResponderPolicy struct {
	// SeqNAKAfterRNR sends a sequence NAK for packets that follow one with an RNR NAK.
	SeqNAKAfterRNR bool
	// ReplaceUnanswered executes READs and atomics beyond max_dest_rd_atomic in place of the
	// oldest ones, even if these are not answered yet.
	ReplaceUnanswered bool
	// RepeatsLast sends responses to duplicate READs after those to new requests.
	RepeatsLast bool
	// ContinuePartialRead answers a duplicate of the end of a READ as a continuation, with
	// MIDDLE and LAST, and forgets the beginning.
	ContinuePartialRead bool
	// ClaimBeforeAccessCheck takes a receive for a WRITE with immediate before checking memory.
	ClaimBeforeAccessCheck bool
	// AnySendLength accepts SEND packets of any length at any position of a message.
	AnySendLength bool
	// LongSendOperational treats a SEND longer than its receive as an operational error, not
	// as an invalid request.
	LongSendOperational bool
	// AckFailedInvalidate acknowledges a SEND whose invalidation fails.
	AckFailedInvalidate bool
	// UnboundInvalidateFatal stops the device when a SEND invalidates an unbound window.
	UnboundInvalidateFatal bool
	// SkipAfterGap drops the first UC message after an unfinished one.
	SkipAfterGap bool
	// LongDatagramFatal fails a UD QP that receives a datagram longer than its receive.
	LongDatagramFatal bool
}

// QPPolicy is the policy of attributes and posts.
type QPPolicy struct {
	// PathMTUAbovePort accepts a path MTU above that of the port.
	PathMTUAbovePort bool
	// ResumeOnPost resumes a send queue that leaves SQD when the next request is posted.
	ResumeOnPost bool
	// CheckOpcodeLate accepts requests that the QP type does not support, and fails the QP
	// when it executes them.
	CheckOpcodeLate bool
}
