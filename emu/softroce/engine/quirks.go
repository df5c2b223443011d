package engine

import (
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
	NoLengthChecks       bool `defect:"R43" does:"wrong lengths of packets of SENDs are accepted"`
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
	OpcodeOrderIgnored   bool `defect:"rc/seq/1, rc/seq/2, rc/seq/3, rc/seq/4" does:"the order of opcodes is not checked"`
	OrderBeforePSN       bool `defect:"rc/seq/7" does:"the order of opcodes is judged before the PSN"`
	LastCompletesTwice   bool `defect:"rc/seq/8" does:"a LAST with immediate or invalidate completes two receives"`
	DuplicateImmReceives bool `defect:"rc/psn/9" does:"a duplicate with immediate data completes another receive"`
	NAKStorm             bool `defect:"rc/psn/6" does:"every packet behind a gap is NAKed"`
	NAKOnlyOnce          bool `defect:"rc/psn/7" does:"a QP sends one sequence NAK in its life"`
	EarlyExecution       bool `defect:"rc/psn/8" does:"packets behind a gap are executed"`
	PSNHalvesUneven      bool `defect:"rc/psn/4" does:"PSNs far ahead count as duplicates"`
	DuplicatesExecuted   bool `defect:"rc/psn/9, rc/atm/4, rc/atm/7, rc/atm/14" does:"duplicates are executed again"`
	MSNCountsPackets     bool `defect:"rc/msn/2, rc/msn/4, rc/msn/5" does:"the MSN counts packets: duplicates, refused ones and each of a message"`
	RNRLeavesTraces      bool `defect:"rc/rnr/2" does:"a message refused for want of a receive has been executed all the same"`
	RNRRestartsMessage   bool `defect:"rc/rnr/3" does:"after an RNR NAK a message must be sent anew"`
	DupReadUnchecked     bool `defect:"rc/read/9" does:"a duplicate READ is executed whatever it asks for"`
	ZeroDepthIsOne       bool `defect:"rc/read/17" does:"a responder without resources for READs executes them"`
	AtomicsWrong         bool `defect:"rc/atm/1, rc/atm/2" does:"COMPARE_SWAP always stores, FETCH_ADD stops at the largest number"`
	AtomicMisaligned     bool `defect:"rc/atm/3, rc/atm/14" does:"misaligned atomics are executed"`
	AtomicsPerQP         bool `defect:"rc/atm/9" does:"atomics of one QP do not see those of another"`
	WriteConsumes        bool `defect:"rc/wr/3" does:"a plain WRITE uses up a receive"`
	EmptyMessagesIgnored bool `defect:"rc/imm/2, rc/send/4" does:"messages without payload complete no receive"`
	InvalidateLate       bool `defect:"rc/inv/1" does:"a key invalidated by a SEND still opens"`
	RecvErrorIsQPOp      bool `defect:"rc/send/2, rxe" does:"a receive with a bad key completes as an operation error"`
	WriteSumUnchecked    bool `defect:"rc/len/5, rc/len/6" does:"what a WRITE brings is not held against what it announced"`
	PlacedBeforeCheck    bool `defect:"acc/8" does:"a WRITE is placed before its right is checked"`
	SRQDomainForWrites   bool `defect:"irdma, acc/5" does:"a QP on an SRQ checks keys of its peers against the SRQ's domain"`
	XRCAnySRQ            bool `defect:"xrc/2, xrc/3" does:"the SRQ number of an XRC request is not looked at"`
	OverrunAcked         bool `defect:"cq/6" does:"a message whose completion found no room is acknowledged"`

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
	LocalErrIsQPOp      bool `defect:"R25" does:"a local error is reported as an operational one, and behind unanswered requests nothing is reported any more"`
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
	SolicitedEverywhere bool `defect:"bth/se/1" does:"SE is on every packet of a solicited request"`
	SegmentsShort       bool `defect:"rc/mtu/2" does:"messages are cut four bytes below the path MTU"`
	ZeroReadFails       bool `defect:"mlx4" does:"a READ of no bytes fails locally"`
	AtomicSinkUnchecked bool `defect:"mlx4" does:"an atomic is executed though its result has no place to go"`
	TimeoutBacksOff     bool `defect:"rc/tmo/2" does:"each timeout is twice as long as the one before"`
	AdaptiveTimeout     bool `defect:"ConnectX" does:"the first resend comes after a sixteenth of the timeout, each further one after twice as long"`

	// Requester: answers and retries.
	PSNStartsAtZero      bool `defect:"rc/psn/16" does:"PSNs begin at 0 whatever was set"`
	OldAnswerCompletes   bool `defect:"rc/psn/14, rc/atm/10" does:"an answer older than what is outstanding counts for it"`
	OldNAKFatal          bool `defect:"rc/psn/14" does:"a fatal NAK older than what is outstanding ends the oldest request"`
	StaleNAKRepeats      bool `defect:"rc/psn/14" does:"a sequence NAK for what was acknowledged has all that is outstanding sent again"`
	StaleRNRWaits        bool `defect:"rc/psn/14" does:"an RNR NAK for what was acknowledged stops the send queue for its time"`
	RNRInsideRestarts    bool `defect:"rc/rnr/9" does:"an RNR NAK inside a message has the message sent again from its first packet"`
	PSNWindowUnlimited   bool `defect:"rc/psn/15" does:"more than half the PSN space is open"`
	AckCoversOne         bool `defect:"rc/ack/4" does:"an ACK completes only the request it names"`
	AckInsideCompletes   bool `defect:"rc/ack/7" does:"an ACK inside a message completes it"`
	NAKFlushesAll        bool `defect:"rc/ack/15" does:"a fatal NAK flushes everything"`
	NAKKeepsRTS          bool `defect:"err/5" does:"a fatal NAK leaves the QP in RTS"`
	NAKAcksNothing       bool `defect:"rc/rnr/9, rc/tmo/10" does:"NAKs do not acknowledge what came before"`
	CreditsBlockAll      bool `defect:"rc/credit/2, rc/credit/3" does:"without credits nothing leaves at all"`
	RetryOffByOne        bool `defect:"rc/tmo/4, rc/rnr/6" does:"one repetition more than the counts allow"`
	RNRRetry7IsSeven     bool `defect:"rc/rnr/7" does:"rnr_retry 7 gives up after seven"`
	RetryCountShared     bool `defect:"rc/rnr/8, rc/tmo/6" does:"losses and RNR NAKs use up one count that progress does not reload"`
	TimerRunsInRNR       bool `defect:"rc/rnr/10" does:"the transport timer goes on during an RNR wait"`
	NoTransportTimer     bool `defect:"rc/tmo/1, rc/tmo/14" does:"there is no transport timer"`
	TimeoutZeroFires     bool `defect:"rc/tmo/3" does:"timeout 0 is the shortest timeout"`
	RetryRestartsMessage bool `defect:"rc/tmo/7, rc/tmo/12" does:"a message is repeated from its first packet at the PSN that was lost"`
	ReadRestartRefused   bool `defect:"rc/read/8" does:"only a retried READ that is answered by one packet is understood"`
	LastCompletesRead    bool `defect:"rc/read/11" does:"a LAST response completes a READ whatever was lost before"`
	LongReadOverflows    bool `defect:"rc/read/14" does:"a READ response longer than asked for is placed in full"`
	SinkUnchecked        bool `defect:"rc/read/15" does:"READs write to memory that may not be written"`
	NAKInReadSucceeds    bool `defect:"rc/read/19, rxe 6.1" does:"a NAK among the responses completes the READ with success"`
	LongMessagesTaken    bool `defect:"rc/wr/7" does:"messages of more than 2^31 bytes are accepted"`
	CompletionsOvertake  bool `defect:"cq/1" does:"a SEND or WRITE completes before an earlier READ"`

	// Queues and state.
	SendAfterDestroy      bool `defect:"R11" does:"a destroyed QP still retransmits once"`
	AnswerAfterReset      bool `defect:"R12" does:"an answer pending at RESET is sent afterwards"`
	OverflowSendQueue     bool `defect:"R15" does:"a full send queue swallows further requests"`
	QPNReusedAtOnce       bool `defect:"R15" does:"the number of a destroyed QP goes to the next one"`
	AnyQPType             bool `defect:"R15" does:"an unknown QP type makes an RC QP"`
	RefusedWRStays        bool `defect:"R37" does:"a send posted too early is refused but stays queued"`
	WrongOpKillsQP        bool `defect:"R37" does:"an operation that the service lacks is accepted, and fails the QP in its turn"`
	SQDNoResume           bool `defect:"R38" does:"leaving SQD does not resume the send queue"`
	SQNeverDrains         bool `defect:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents            bool `defect:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR"`
	NoLastWQEEvent        bool `defect:"R41, srq/5" does:"a failed QP on an SRQ does not report its last receive"`
	ModifyHalfway         bool `defect:"qp/2" does:"a refused modify has changed the state already"`
	EarlySendSwallowed    bool `defect:"most NICs" does:"a send posted before RTS is accepted and vanishes"`
	NoFlushInError        bool `defect:"mlx5" does:"requests posted to a failed QP never complete"`
	UnsignaledBindSilent  bool `defect:"mlx5" does:"an unsignaled bind that fails completes nothing"`
	AtomicAnySize         bool `defect:"mlx5" does:"atomics take local memory of any size"`
	AtomicOneSGE          bool `defect:"irdma" does:"atomics refuse local memory in two pieces"`
	AHsUncounted          bool `defect:"mlx4" does:"a domain with address handles may go"`
	AHClosesTwice         bool `defect:"mlx4, mlx5" does:"an address handle can be closed again and again"`
	AnswersInError        bool `defect:"bth/state/3" does:"a failed QP goes on executing and acknowledging"`
	LocalInvEarly         bool `defect:"mw/14" does:"a local invalidate takes effect when it is posted"`
	BindForeignRegion     bool `defect:"rxe, mw/4" does:"a type 2 window is bound to a region of another domain"`
	BoundQPBusy           bool `defect:"mw/12" does:"a QP with bound windows cannot be destroyed"`
	SRQFlushed            bool `defect:"srq/5" does:"a failed QP flushes its SRQ"`
	ModifyUnchecked       bool `defect:"qp/1, qp/9" does:"transitions and attribute masks are not checked"`
	ValuesUnchecked       bool `defect:"rxe" does:"a P_Key index, a path MTU of 0, a responder depth, an RNR timer or a retry count that cannot be is taken"`
	PathMTUUnchecked      bool `defect:"rxe, rc/mtu/1" does:"a path MTU above that of the port is accepted"`
	RecvStateWrong        bool `defect:"qp/4" does:"receives are taken in RESET and refused in INIT"`
	RTSOnly               bool `defect:"qp/5, sqd/5" does:"a QP receives in RTS only"`
	ResetKeepsQueues      bool `defect:"qp/6" does:"posted work survives RESET"`
	SQDIgnored            bool `defect:"sqd/1, sqd/3" does:"SQD does not stop the send queue and may be left at once"`
	UnsignaledErrorSilent bool `defect:"err/1" does:"an unsignaled request that fails completes nothing"`
	LatePlacement         bool `defect:"rc/wr/6, cq/10" does:"data are in place only after the completion"`
	ReceivesSwapped       bool `defect:"cq/2" does:"every second receive completion overtakes the one before"`

	// Unreliable services.
	UCLossLocksUp      bool `defect:"R5" does:"a lost packet stops a UC QP for good"`
	UDOversizeCut      bool `defect:"R10" does:"a datagram beyond the MTU leaves truncated"`
	AHOtherPD          bool `defect:"R15" does:"address handles of other domains are used"`
	PrivilegedQKey     bool `defect:"R36" does:"a Q_Key with the high bit set is sent as posted"`
	UCLosesNext        bool `defect:"R39" does:"the first good UC message after a damaged one is lost too"`
	UDLongKillsQP      bool `defect:"R43" does:"a datagram longer than the receive buffer brings the QP down"`
	GSIAckReq          bool `defect:"R45" does:"CM datagrams carry AckReq"`
	NoTClassInArea     bool `defect:"irdma" does:"the header area of datagrams lacks the traffic class"`
	SourceUnchecked    bool `defect:"pkt/addr/2" does:"packets from any address are taken for the connection's"`
	UCReadsSent        bool `defect:"uc/8" does:"a READ posted to a UC QP is sent"`
	UCErrorIsFatal     bool `defect:"uc/9, rxe" does:"a local error takes a UC QP to ERR"`
	UCDropsFatal       bool `defect:"uc/5, uc/10" does:"what UC is to drop or may repeat brings the QP down"`
	UCPartialDelivered bool `defect:"uc/2" does:"a UC message that lost a packet is delivered with a hole"`
	UCStrictPSN        bool `defect:"uc/4" does:"a UC message that does not begin at the expected PSN is dropped"`
	AreaMissing        bool `defect:"ud/1, ud/10, cq/9" does:"datagrams are delivered without their header area"`
	UDLongConsumes     bool `defect:"ud/6" does:"a datagram longer than the receive uses it up"`
	MulticastOneCopy   bool `defect:"ud/13" does:"a multicast reaches one QP only"`

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
	MarkedDropped          bool `defect:"ecn/1" does:"a marked packet is answered with a CNP and dropped"`
	CNPSlowsAll            bool `defect:"ecn/3" does:"a CNP slows every QP of the port"`
	RateNeverRecovers      bool `defect:"ecn/4" does:"a QP that was slowed stays slow"`
	KeysIgnored            bool `defect:"bth/pkey/1, bth/pkey/2, ud/2, ud/4" does:"neither P_Keys nor Q_Keys of received packets are checked"`
	KeyViolationsUncounted bool `defect:"bth/pkey/1, ud/2" does:"packets refused for their keys are not counted"`
	PKeyExact              bool `defect:"bth/pkey/2, bth/pkey/3" does:"P_Keys are compared bit by bit with the first of the table"`
	PortEventsMissing      bool `defect:"async/3" does:"the port does not report that its link went or came"`
	RemovedAddressUsed     bool `defect:"async/4" does:"an address that was taken away still sends and receives"`
	CNPCounterStuck        bool `defect:"E810" does:"the counter of CNPs sent stands still"`
	ImpliedNAKCounterStuck bool `defect:"ConnectX-4 Lx" does:"the counter of implied NAKs stands still"`

	// Queues switches off checks of completion and receive queues.
	Queues nic.Lax
	// Memory switches off checks of keys, windows and ranges.
	Memory nic.LaxMemory
}
