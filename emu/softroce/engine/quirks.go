package engine

import "github.com/fabrictest/fabrictest/emu/internal/core"

// Quirks make a NIC misbehave on purpose. Each imitates a defect that a real
// device or driver has, or had; the zero value has none. They serve two ends:
// applications can be tried against a flawed NIC, and a conformance case proves
// that it can fail by failing on the quirk it was written for.
//
// Comments give the defect's number in the project's list of known defects
// (docs/quirks.md).
type Quirks struct {
	// Responder.
	DupReadResetsMessage bool // R1: a duplicate READ forgets the message under way
	DupAckTakesReadPSN   bool // R2: the ACK of a duplicate WRITE carries the PSN of a later READ
	NoRdAtomicLimit      bool // R28: excess READs and atomics are executed, and overwrite replay memory
	SeqNAKAfterRNR       bool // R29: a sequence NAK follows an RNR NAK
	LongSendIsOpError    bool // R32: a SEND beyond the receive buffer is NAKed as operational error
	FailedImmConsumes    bool // R33: a refused WRITE with immediate uses up a receive
	SubReadContinues     bool // R40: a retried part of a READ is answered MIDDLE, LAST; earlier parts are then lost
	DupReadWaits         bool // R46: an earlier duplicate READ waits behind a later one's answer
	ReservedOpSilent     bool // R47: reserved opcodes are dropped without NAK
	NoLengthChecks       bool // R43: wrong packet lengths are accepted
	ShortAtomicWrite     bool // R48: an ATOMIC WRITE of fewer than 8 bytes is executed
	PadUnderflow         bool // R48: a pad longer than the payload is accepted
	ErrCompletesRecvs    bool // R48: receives pending when a QP fails complete as if a message had come
	ModifyForgetsReplay  bool // R48: changing max_dest_rd_atomic drops the replay memory
	UnknownOpFatal       bool // R48: an unknown opcode brings the QP down
	AckReqOnResponses    bool // R6: responses carry AckReq
	InvalidateAcked      bool // R22: a failed remote invalidate is acknowledged
	InvalidateNAKed      bool // a failed remote invalidate is NAKed (irdma)
	InvalidatePanics     bool // R23: invalidating a free window kills the device
	ZeroLengthChecksKey  bool // zero-length operations validate the R_Key (mlx4)
	BuffersBeforeRTR     bool // messages for a QP in INIT wait and are executed at RTR (mlx4, mlx5)

	// Requester and completer.
	AckSkipsRead        bool // R3: an ACK past an unanswered READ completes it
	ReadRetryFromStart  bool // R4: a retried READ asks for the original address and length
	PSNUnsigned         bool // R7: PSNs compare as plain integers
	MigReqZero          bool // R9: MigReq is always 0
	DropMigReqZero      bool // R9: packets with MigReq 0 are dropped
	RNRNoWait           bool // R13: an RNR NAK is retried at once
	StaleAckBreaksRead  bool // R17: an old ACK among READ responses completes the READ with a hole
	AckCompletesRead    bool // R18: a plain ACK completes a READ
	BadRespSucceeds     bool // R19: malformed responses complete the work request with success
	ShortReadHangs      bool // R20: a short READ response stalls the queue for good
	LocalErrFlushesAll  bool // R25: a local error flushes earlier requests and loses its cause
	RetryCount7Forever  bool // R26: retry_cnt 7 never gives up
	RdAtomicRoundsUp    bool // R27: max_rd_atomic is rounded up to a power of two
	IgnoreSecondNAK     bool // R30: a second NAK in one window is ignored
	GhostAckCompletes   bool // R31: a response with a PSN never sent completes what is outstanding
	FetchAddLeaks       bool // R34: FETCH_ADD sends stale bytes in its unused field
	RefusedWRStays      bool // R37: a send posted too early is refused but stays queued
	SQDNoResume         bool // R38: leaving SQD does not resume the send queue
	RNRTimerTypo        bool // R42: RNR timer code 25 is 61.41 ms
	JiffyTimers         bool // R42: all timers are multiples of 4 ms
	ReadAckIgnored      bool // a READ response does not acknowledge earlier requests (old Mellanox)
	SendAfterDestroy    bool // R11: a destroyed QP still retransmits once
	AnswerAfterReset    bool // R12: an answer pending at RESET is sent afterwards
	OverflowSendQueue   bool // R15: a full send queue swallows further requests
	OverflowSRQ         bool // R15: a full SRQ overwrites its newest receive
	QPNReusedAtOnce     bool // R15: the number of a destroyed QP goes to the next one
	SRQReceiveAnyPD     bool // R15: SRQ receives may name memory of any domain
	DuplicateNAKsResend bool // every copy of a NAK causes a resend

	// Unreliable services.
	UCLossLocksUp   bool // R5: a lost packet stops a UC QP for good
	UCLosesNext     bool // R39: the first good UC message after a damaged one is lost too
	UDOversizeCut   bool // R10: a datagram beyond the MTU leaves truncated
	UDLongKillsQP   bool // R43: a datagram longer than the receive buffer brings the QP down
	PrivilegedQKey  bool // R36: a Q_Key with the high bit set is sent as posted
	AHOtherPD       bool // R15: address handles of other domains are used
	GSIAckReq       bool // R45: CM datagrams carry AckReq
	SourceUnchecked bool // packets from any address are taken for the connection's

	// Packets and the port.
	ICRCWrong         bool // R8: the ICRC is computed without masking variant fields
	ICRCIgnored       bool // the ICRC of received packets is not checked
	FlushICRCDoubled  bool // R35: FLUSH counts its headers twice in the ICRC
	ECNFromTClass     bool // R44: the ECN bits come from the traffic class
	NoCongestion      bool // R16: neither sends nor heeds CNPs
	CNPBurst          bool // every marked packet is answered with a CNP
	NoQPEvents        bool // R41: no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR, LAST_WQE_REACHED
	FixedHopLimit     bool // the hop limit is always 64
	NoCreditReporting bool // credits are never advertised
	NoCreditHeeding   bool // received credits are ignored

	// Memory switches off checks of keys, windows and ranges: R15 (IgnorePD),
	// R21 (WindowBounds), R24 (ForeignInvalidate), R48 (WrappingRange).
	Memory core.Lax
}
