package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Quirks make a NIC misbehave on purpose. Each imitates a defect that a real
// device or driver has, or had; the zero value has none. They serve two ends:
// applications can be tried against a flawed NIC, and a conformance case proves
// that it can fail by failing on the quirk it was written for.
//
// Tags say what a quirk does and whose defect it is: a number of the project's
// list of known defects (docs/quirks.md), or the device.
type Quirks struct {
	// Responder.
	DupReadResetsMessage bool `defect:"R1" does:"a duplicate READ forgets the message under way"`
	DupAckTakesReadPSN   bool `defect:"R2" does:"the ACK of a duplicate WRITE carries the PSN of a later READ"`
	AckReqOnResponses    bool `defect:"R6" does:"responses carry AckReq"`
	InvalidateAcked      bool `defect:"R22" does:"a failed remote invalidate is acknowledged"`
	InvalidatePanics     bool `defect:"R23" does:"invalidating a free window kills the device"`
	NoRdAtomicLimit      bool `defect:"R28" does:"excess READs and atomics are executed and overwrite replay memory"`
	SeqNAKAfterRNR       bool `defect:"R29" does:"a sequence NAK follows an RNR NAK"`
	LongSendIsOpError    bool `defect:"R32" does:"a SEND beyond the receive buffer is NAKed as operational error"`
	FailedImmConsumes    bool `defect:"R33" does:"a refused WRITE with immediate uses up a receive"`
	SubReadContinues     bool `defect:"R40" does:"a retried part of a READ is answered MIDDLE, LAST, and earlier parts are then lost"`
	NoLengthChecks       bool `defect:"R43" does:"wrong packet lengths are accepted"`
	DupReadWaits         bool `defect:"R46" does:"an earlier duplicate READ waits behind a later one's answer"`
	ReservedOpSilent     bool `defect:"R47" does:"reserved opcodes are dropped without NAK"`
	ShortAtomicWrite     bool `defect:"R48" does:"an ATOMIC WRITE of fewer than 8 bytes is executed"`
	PadUnderflow         bool `defect:"R48" does:"a pad longer than the payload is accepted"`
	ErrCompletesRecvs    bool `defect:"R48" does:"receives pending when a QP fails complete as if a message had come"`
	ModifyForgetsReplay  bool `defect:"R48" does:"changing max_dest_rd_atomic drops the replay memory"`
	UnknownOpFatal       bool `defect:"R48" does:"an unknown opcode brings the QP down"`
	RaggedAccepted       bool `defect:"rxe" does:"a payload of no multiple of four bytes is accepted without pad"`
	GRHFlagOnConnected   bool `defect:"rxe" does:"receive completions of connections claim a header area"`
	InvalidateNAKed      bool `defect:"irdma" does:"a failed remote invalidate is NAKed"`
	ResetKeepsState      bool `defect:"irdma" does:"a QP keeps its PSNs and its replay memory through RESET"`
	ZeroLengthChecksKey  bool `defect:"rc/read/4, rc/wr/2" does:"zero-length operations validate the R_Key"`
	BuffersBeforeRTR     bool `defect:"mlx4, mlx5" does:"messages for a QP in INIT wait and are executed at RTR"`

	// Requester and completer.
	AckSkipsRead        bool `defect:"R3" does:"an ACK past an unanswered READ completes it"`
	ReadRetryFromStart  bool `defect:"R4" does:"a retried READ asks for the original address and length"`
	PSNUnsigned         bool `defect:"R7" does:"PSNs compare as plain integers"`
	MigReqZero          bool `defect:"R9" does:"MigReq is always 0"`
	DropMigReqZero      bool `defect:"R9" does:"packets with MigReq 0 are dropped"`
	RNRNoWait           bool `defect:"R13" does:"an RNR NAK is retried at once"`
	StaleAckBreaksRead  bool `defect:"R17" does:"an old ACK among READ responses completes the READ with a hole"`
	AckCompletesRead    bool `defect:"R18" does:"a plain ACK completes a READ"`
	BadRespSucceeds     bool `defect:"R19" does:"malformed responses complete the work request with success"`
	ShortReadHangs      bool `defect:"R20" does:"a short READ response stalls the queue for good"`
	LocalErrFlushesAll  bool `defect:"R25" does:"a local error flushes earlier requests and loses its cause"`
	RetryCount7Forever  bool `defect:"R26" does:"retry_cnt 7 never gives up"`
	RdAtomicRoundsUp    bool `defect:"R27" does:"max_rd_atomic is rounded up to a power of two"`
	IgnoreSecondNAK     bool `defect:"R30" does:"a second NAK in one window is ignored"`
	GhostAckCompletes   bool `defect:"R31" does:"a response with a PSN never sent completes what is outstanding"`
	FetchAddLeaks       bool `defect:"R34" does:"FETCH_ADD sends stale bytes in its unused field"`
	RNRTimerTypo        bool `defect:"R42" does:"RNR timer code 25 is 61.41 ms"`
	JiffyTimers         bool `defect:"R42" does:"all timers are multiples of 4 ms"`
	DuplicateNAKsResend bool `defect:"rc/tmo/11" does:"every copy of a NAK causes a resend"`
	ReadAckIgnored      bool `defect:"old Mellanox" does:"a READ response does not acknowledge earlier requests"`
	RNRExcIsRetryExc    bool `defect:"irdma" does:"exhausted RNR retries are reported as exhausted transport retries"`
	RetryExcHangs       bool `defect:"mlx5" does:"a request whose retries run out never completes"`
	ZeroReadFails       bool `defect:"mlx4" does:"a READ of no bytes fails locally"`
	AtomicSinkUnchecked bool `defect:"mlx4" does:"an atomic is executed though its result has no place to go"`
	AdaptiveTimeout     bool `defect:"ConnectX" does:"the first resend comes after a sixteenth of the timeout, each further one after twice as long"`

	// Queues and state.
	SendAfterDestroy     bool `defect:"R11" does:"a destroyed QP still retransmits once"`
	AnswerAfterReset     bool `defect:"R12" does:"an answer pending at RESET is sent afterwards"`
	OverflowSendQueue    bool `defect:"R15" does:"a full send queue swallows further requests"`
	QPNReusedAtOnce      bool `defect:"R15" does:"the number of a destroyed QP goes to the next one"`
	AnyQPType            bool `defect:"R15" does:"an unknown QP type makes an RC QP"`
	RefusedWRStays       bool `defect:"R37" does:"a send posted too early is refused but stays queued"`
	WrongOpKillsQP       bool `defect:"R37" does:"an operation that the service lacks is accepted, and fails the QP in its turn"`
	SQDNoResume          bool `defect:"R38" does:"leaving SQD does not resume the send queue"`
	SQNeverDrains        bool `defect:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents           bool `defect:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR, LAST_WQE_REACHED"`
	ModifyHalfway        bool `defect:"rxe" does:"a refused modify has changed the state already"`
	EarlySendSwallowed   bool `defect:"most NICs" does:"a send posted before RTS is accepted and vanishes"`
	NoFlushInError       bool `defect:"mlx5" does:"requests posted to a failed QP never complete"`
	UnsignaledBindSilent bool `defect:"mlx5" does:"an unsignaled bind that fails completes nothing"`
	AtomicAnySize        bool `defect:"mlx5" does:"atomics take local memory of any size"`
	AtomicOneSGE         bool `defect:"irdma" does:"atomics refuse local memory in two pieces"`
	AHsUncounted         bool `defect:"mlx4" does:"a domain with address handles may go"`

	// Unreliable services.
	UCLossLocksUp   bool `defect:"R5" does:"a lost packet stops a UC QP for good"`
	UDOversizeCut   bool `defect:"R10" does:"a datagram beyond the MTU leaves truncated"`
	AHOtherPD       bool `defect:"R15" does:"address handles of other domains are used"`
	PrivilegedQKey  bool `defect:"R36" does:"a Q_Key with the high bit set is sent as posted"`
	UCLosesNext     bool `defect:"R39" does:"the first good UC message after a damaged one is lost too"`
	UDLongKillsQP   bool `defect:"R43" does:"a datagram longer than the receive buffer brings the QP down"`
	GSIAckReq       bool `defect:"R45" does:"CM datagrams carry AckReq"`
	NoTClassInArea  bool `defect:"irdma" does:"the header area of datagrams lacks the traffic class"`
	SourceUnchecked bool `defect:"pkt/addr/2" does:"packets from any address are taken for the connection's"`

	// Packets, the port and congestion.
	ICRCWrong              bool `defect:"R8" does:"the ICRC is computed without masking variant fields"`
	NoCongestion           bool `defect:"R16" does:"CNPs are neither sent nor heeded"`
	FlushICRCDoubled       bool `defect:"R35" does:"FLUSH counts its headers twice in the ICRC"`
	ECNFromTClass          bool `defect:"R44" does:"the ECN bits come from the traffic class"`
	ICRCIgnored            bool `defect:"icrc/2" does:"the ICRC of received packets is not checked"`
	FixedHopLimit          bool `defect:"rxe" does:"the hop limit is always 64"`
	NoCreditReporting      bool `defect:"rxe" does:"credits are never advertised"`
	NoCreditHeeding        bool `defect:"rxe" does:"received credits are ignored"`
	CNPBurst               bool `defect:"ecn/2" does:"every marked packet is answered with a CNP"`
	CNPOnNAK               bool `defect:"ConnectX-5, ConnectX-6" does:"a sequence NAK is accompanied by a CNP"`
	CNPPerPort             bool `defect:"NIC mode" does:"all QPs of the port share one CNP interval"`
	CNPPerPeer             bool `defect:"NIC mode" does:"all QPs between two addresses share one CNP interval"`
	CNPCounterStuck        bool `defect:"E810" does:"the counter of CNPs sent stands still"`
	ImpliedNAKCounterStuck bool `defect:"ConnectX-4 Lx" does:"the counter of implied NAKs stands still"`

	// Queues switches off checks of completion and receive queues.
	Queues nic.Lax
	// Memory switches off checks of keys, windows and ranges.
	Memory core.Lax
}
