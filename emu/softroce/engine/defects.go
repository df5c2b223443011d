package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Defects make a NIC misbehave on purpose. Each imitates a defect that a real
// device or driver has, or had; the zero value has none. They serve two ends:
// applications can be tried against a defective NIC, and a conformance case proves
// that it can fail by failing on the defect it was written for.
//
// Tags say what a defect does and whose defect it is: a number of the project's
// list of known defects (docs/defects.md), or the device.
type Defects struct {
	// Responder.
	DupReadResetsMessage bool `imitates:"R1" does:"a duplicate READ forgets the message under way"`
	DupAckTakesReadPSN   bool `imitates:"R2" does:"the ACK of a duplicate WRITE carries the PSN of a later READ"`
	AckReqOnResponses    bool `imitates:"R6" does:"responses carry AckReq"`
	InvalidateAcked      bool `imitates:"R22" does:"a failed remote invalidate is acknowledged"`
	InvalidatePanics     bool `imitates:"R23" does:"invalidating a free window kills the device"`
	NoRdAtomicLimit      bool `imitates:"R28" does:"excess READs and atomics are executed and overwrite replay memory"`
	SeqNAKAfterRNR       bool `imitates:"R29" does:"a sequence NAK follows an RNR NAK"`
	LongSendIsOpError    bool `imitates:"R32" does:"a SEND beyond the receive buffer is NAKed as operational error"`
	FailedImmConsumes    bool `imitates:"R33" does:"a refused WRITE with immediate uses up a receive"`
	SubReadContinues     bool `imitates:"R40" does:"a retried part of a READ is answered MIDDLE, LAST, and earlier parts are then lost"`
	NoLengthChecks       bool `imitates:"R43" does:"wrong lengths of packets of SENDs are accepted"`
	DupReadWaits         bool `imitates:"R46" does:"an earlier duplicate READ waits behind a later one's answer"`
	ReservedOpSilent     bool `imitates:"R47" does:"reserved opcodes are dropped without NAK"`
	ShortAtomicWrite     bool `imitates:"R48" does:"an ATOMIC WRITE of fewer than 8 bytes is executed"`
	PadUnderflow         bool `imitates:"R48" does:"a pad longer than the payload is accepted"`
	ErrCompletesRecvs    bool `imitates:"R48" does:"receives pending when a QP fails complete as if a message had come"`
	ModifyForgetsReplay  bool `imitates:"R48" does:"changing max_dest_rd_atomic drops the replay memory"`
	UnknownOpFatal       bool `imitates:"R48" does:"an unknown opcode brings the QP down"`
	RaggedAccepted       bool `imitates:"rxe" does:"a payload of no multiple of four bytes is accepted without pad"`
	GRHFlagOnConnected   bool `imitates:"rxe" does:"receive completions of connections claim a header area"`
	InvalidateNAKed      bool `imitates:"irdma" does:"a failed remote invalidate is NAKed"`
	ResetKeepsState      bool `imitates:"irdma" does:"a QP keeps its PSNs and its replay memory through RESET"`
	ZeroLengthChecksKey  bool `imitates:"rc/read/4, rc/wr/2" does:"zero-length operations validate the R_Key"`
	BuffersBeforeRTR     bool `imitates:"mlx4, mlx5" does:"messages for a QP in INIT wait and are executed at RTR"`
	OpcodeOrderIgnored   bool `imitates:"rc/seq/1, rc/seq/2, rc/seq/3, rc/seq/4" does:"the order of opcodes is not checked"`
	OrderBeforePSN       bool `imitates:"rc/seq/7" does:"the order of opcodes is judged before the PSN"`
	LastCompletesTwice   bool `imitates:"rc/seq/8" does:"a LAST with immediate or invalidate completes two receives"`
	DuplicateImmReceives bool `imitates:"rc/psn/9" does:"a duplicate with immediate data completes another receive"`
	NAKStorm             bool `imitates:"rc/psn/6" does:"every packet behind a gap is NAKed"`
	NAKOnlyOnce          bool `imitates:"rc/psn/7" does:"a QP sends one sequence NAK in its life"`
	EarlyExecution       bool `imitates:"rc/psn/8" does:"packets behind a gap are executed"`
	PSNHalvesUneven      bool `imitates:"rc/psn/4" does:"PSNs far ahead count as duplicates"`
	DuplicatesExecuted   bool `imitates:"rc/psn/9, rc/atm/4, rc/atm/7, rc/atm/14" does:"duplicates are executed again"`
	MSNCountsPackets     bool `imitates:"rc/msn/2, rc/msn/4, rc/msn/5" does:"the MSN counts packets: duplicates, refused ones and each of a message"`
	RNRLeavesTraces      bool `imitates:"rc/rnr/2" does:"a message refused for want of a receive has been executed all the same"`
	RNRRestartsMessage   bool `imitates:"rc/rnr/3" does:"after an RNR NAK a message must be sent anew"`
	DupReadUnchecked     bool `imitates:"rc/read/9" does:"a duplicate READ is executed whatever it asks for"`
	ZeroDepthIsOne       bool `imitates:"rc/read/17" does:"a responder without resources for READs executes them"`
	AtomicsWrong         bool `imitates:"rc/atm/1, rc/atm/2" does:"COMPARE_SWAP always stores, FETCH_ADD stops at the largest number"`
	AtomicMisaligned     bool `imitates:"rc/atm/3, rc/atm/14" does:"misaligned atomics are executed"`
	AtomicsPerQP         bool `imitates:"rc/atm/9" does:"atomics of one QP do not see those of another"`
	WriteConsumes        bool `imitates:"rc/wr/3" does:"a plain WRITE uses up a receive"`
	EmptyMessagesIgnored bool `imitates:"rc/imm/2, rc/send/4" does:"messages without payload complete no receive"`
	InvalidateLate       bool `imitates:"rc/inv/1" does:"a key invalidated by a SEND still opens"`
	RecvErrorIsQPOp      bool `imitates:"rc/send/2, rxe" does:"a receive with a bad key completes as an operation error"`
	WriteSumUnchecked    bool `imitates:"rc/len/5, rc/len/6" does:"what a WRITE brings is not held against what it announced"`
	PlacedBeforeCheck    bool `imitates:"acc/8" does:"a WRITE is placed before its right is checked"`
	SRQDomainForWrites   bool `imitates:"irdma, acc/5" does:"a QP on an SRQ checks keys of its peers against the SRQ's domain"`
	XRCAnySRQ            bool `imitates:"xrc/2, xrc/3" does:"the SRQ number of an XRC request is not looked at"`
	OverrunAcked         bool `imitates:"cq/6" does:"a message whose completion found no room is acknowledged"`

	// Requester and completer.
	AckSkipsRead        bool `imitates:"R3" does:"an ACK past an unanswered READ completes it"`
	ReadRetryFromStart  bool `imitates:"R4" does:"a retried READ asks for the original address and length"`
	PSNUnsigned         bool `imitates:"R7" does:"PSNs compare as plain integers"`
	MigReqZero          bool `imitates:"R9" does:"MigReq is always 0"`
	DropMigReqZero      bool `imitates:"R9" does:"packets with MigReq 0 are dropped"`
	RNRNoWait           bool `imitates:"R13" does:"an RNR NAK is retried at once"`
	StaleAckBreaksRead  bool `imitates:"R17" does:"an old ACK among READ responses completes the READ with a hole"`
	AckCompletesRead    bool `imitates:"R18" does:"a plain ACK completes a READ"`
	BadRespSucceeds     bool `imitates:"R19" does:"malformed responses complete the work request with success"`
	ShortReadHangs      bool `imitates:"R20" does:"a short READ response stalls the queue for good"`
	LocalErrFlushesAll  bool `imitates:"R25" does:"a local error flushes earlier requests and loses its cause"`
	LocalErrIsQPOp      bool `imitates:"R25" does:"a local error is reported as an operational one, and behind unanswered requests nothing is reported any more"`
	RetryCount7Forever  bool `imitates:"R26" does:"retry_cnt 7 never gives up"`
	RdAtomicRoundsUp    bool `imitates:"R27" does:"max_rd_atomic is rounded up to a power of two"`
	IgnoreSecondNAK     bool `imitates:"R30" does:"a second NAK in one window is ignored"`
	GhostAckCompletes   bool `imitates:"R31" does:"a response with a PSN never sent completes what is outstanding"`
	FetchAddLeaks       bool `imitates:"R34" does:"FETCH_ADD sends stale bytes in its unused field"`
	RNRTimerTypo        bool `imitates:"R42" does:"RNR timer code 25 is 61.41 ms"`
	JiffyTimers         bool `imitates:"R42" does:"all timers are multiples of 4 ms"`
	DuplicateNAKsResend bool `imitates:"rc/tmo/11" does:"every copy of a NAK causes a resend"`
	ReadAckIgnored      bool `imitates:"old Mellanox" does:"a READ response does not acknowledge earlier requests"`
	RNRExcIsRetryExc    bool `imitates:"irdma" does:"exhausted RNR retries are reported as exhausted transport retries"`
	RetryExcHangs       bool `imitates:"mlx5" does:"a request whose retries run out never completes"`
	SolicitedEverywhere bool `imitates:"bth/se/1" does:"SE is on every packet of a solicited request"`
	SegmentsShort       bool `imitates:"rc/mtu/2" does:"messages are cut four bytes below the path MTU"`
	ZeroReadFails       bool `imitates:"mlx4" does:"a READ of no bytes fails locally"`
	AtomicSinkUnchecked bool `imitates:"mlx4" does:"an atomic is executed though its result has no place to go"`
	TimeoutBacksOff     bool `imitates:"rc/tmo/2" does:"each timeout is twice as long as the one before"`
	AdaptiveTimeout     bool `imitates:"ConnectX" does:"the first resend comes after a sixteenth of the timeout, each further one after twice as long"`

	// Requester: answers and retries.
	PSNStartsAtZero      bool `imitates:"rc/psn/16" does:"PSNs begin at 0 whatever was set"`
	OldAnswerCompletes   bool `imitates:"rc/psn/14, rc/atm/10" does:"an answer older than what is outstanding counts for it"`
	OldNAKFatal          bool `imitates:"rc/psn/14" does:"a fatal NAK older than what is outstanding ends the oldest request"`
	StaleNAKRepeats      bool `imitates:"rc/psn/14" does:"a sequence NAK for what was acknowledged has all that is outstanding sent again"`
	StaleRNRWaits        bool `imitates:"rc/psn/14" does:"an RNR NAK for what was acknowledged stops the send queue for its time"`
	RNRInsideRestarts    bool `imitates:"rc/rnr/9" does:"an RNR NAK inside a message has the message sent again from its first packet"`
	PSNWindowUnlimited   bool `imitates:"rc/psn/15" does:"more than half the PSN space is open"`
	AckCoversOne         bool `imitates:"rc/ack/4" does:"an ACK completes only the request it names"`
	AckInsideCompletes   bool `imitates:"rc/ack/7" does:"an ACK inside a message completes it"`
	NAKFlushesAll        bool `imitates:"rc/ack/15" does:"a fatal NAK flushes everything"`
	NAKKeepsRTS          bool `imitates:"err/5" does:"a fatal NAK leaves the QP in RTS"`
	NAKAcksNothing       bool `imitates:"rc/rnr/9, rc/tmo/10" does:"NAKs do not acknowledge what came before"`
	CreditsBlockAll      bool `imitates:"rc/credit/2, rc/credit/3" does:"without credits nothing leaves at all"`
	RetryOffByOne        bool `imitates:"rc/tmo/4, rc/rnr/6" does:"one repetition more than the counts allow"`
	RNRRetry7IsSeven     bool `imitates:"rc/rnr/7" does:"rnr_retry 7 gives up after seven"`
	RetryCountShared     bool `imitates:"rc/rnr/8, rc/tmo/6" does:"losses and RNR NAKs use up one count that progress does not reload"`
	TimerRunsInRNR       bool `imitates:"rc/rnr/10" does:"the transport timer goes on during an RNR wait"`
	NoTransportTimer     bool `imitates:"rc/tmo/1, rc/tmo/14" does:"there is no transport timer"`
	TimeoutZeroFires     bool `imitates:"rc/tmo/3" does:"timeout 0 is the shortest timeout"`
	RetryRestartsMessage bool `imitates:"rc/tmo/7, rc/tmo/12" does:"a message is repeated from its first packet at the PSN that was lost"`
	ReadRestartRefused   bool `imitates:"rc/read/8" does:"only a retried READ that is answered by one packet is understood"`
	LastCompletesRead    bool `imitates:"rc/read/11" does:"a LAST response completes a READ whatever was lost before"`
	LongReadOverflows    bool `imitates:"rc/read/14" does:"a READ response longer than asked for is placed in full"`
	SinkUnchecked        bool `imitates:"rc/read/15" does:"READs write to memory that may not be written"`
	NAKInReadSucceeds    bool `imitates:"rc/read/19, rxe 6.1" does:"a NAK among the responses completes the READ with success"`
	LongMessagesTaken    bool `imitates:"rc/wr/7" does:"messages of more than 2^31 bytes are accepted"`
	CompletionsOvertake  bool `imitates:"cq/1" does:"a SEND or WRITE completes before an earlier READ"`

	// Queues and state.
	SendAfterDestroy      bool `imitates:"R11" does:"a destroyed QP still retransmits once"`
	AnswerAfterReset      bool `imitates:"R12" does:"an answer pending at RESET is sent afterwards"`
	OverflowSendQueue     bool `imitates:"R15" does:"a full send queue swallows further requests"`
	QPNReusedAtOnce       bool `imitates:"R15" does:"the number of a destroyed QP goes to the next one"`
	AnyQPType             bool `imitates:"R15" does:"an unknown QP type makes an RC QP"`
	RefusedWRStays        bool `imitates:"R37" does:"a send posted too early is refused but stays queued"`
	WrongOpKillsQP        bool `imitates:"R37" does:"an operation that the service lacks is accepted, and fails the QP in its turn"`
	SQDNoResume           bool `imitates:"R38" does:"leaving SQD does not resume the send queue"`
	SQNeverDrains         bool `imitates:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents            bool `imitates:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR"`
	NoLastWQEEvent        bool `imitates:"R41, srq/5" does:"a failed QP on an SRQ does not report its last receive"`
	ModifyHalfway         bool `imitates:"qp/2" does:"a refused modify has changed the state already"`
	EarlySendSwallowed    bool `imitates:"most NICs" does:"a send posted before RTS is accepted and vanishes"`
	NoFlushInError        bool `imitates:"mlx5" does:"requests posted to a failed QP never complete"`
	UnsignaledBindSilent  bool `imitates:"mlx5" does:"an unsignaled bind that fails completes nothing"`
	AtomicAnySize         bool `imitates:"mlx5" does:"atomics take local memory of any size"`
	AtomicOneSGE          bool `imitates:"irdma" does:"atomics refuse local memory in two pieces"`
	AHsUncounted          bool `imitates:"mlx4" does:"a domain with address handles may go"`
	AHClosesTwice         bool `imitates:"mlx4, mlx5" does:"an address handle can be closed again and again"`
	AnswersInError        bool `imitates:"bth/state/3" does:"a failed QP goes on executing and acknowledging"`
	LocalInvEarly         bool `imitates:"mw/14" does:"a local invalidate takes effect when it is posted"`
	BindForeignRegion     bool `imitates:"rxe, mw/4" does:"a type 2 window is bound to a region of another domain"`
	BoundQPBusy           bool `imitates:"mw/12" does:"a QP with bound windows cannot be destroyed"`
	SRQFlushed            bool `imitates:"srq/5" does:"a failed QP flushes its SRQ"`
	ModifyUnchecked       bool `imitates:"qp/1, qp/9" does:"transitions and attribute masks are not checked"`
	ValuesUnchecked       bool `imitates:"rxe" does:"a P_Key index, a path MTU of 0, a responder depth, an RNR timer or a retry count that cannot be is taken"`
	PathMTUUnchecked      bool `imitates:"rxe, rc/mtu/1" does:"a path MTU above that of the port is accepted"`
	RecvStateWrong        bool `imitates:"qp/4" does:"receives are taken in RESET and refused in INIT"`
	RTSOnly               bool `imitates:"qp/5, sqd/5" does:"a QP receives in RTS only"`
	ResetKeepsQueues      bool `imitates:"qp/6" does:"posted work survives RESET"`
	SQDIgnored            bool `imitates:"sqd/1, sqd/3" does:"SQD does not stop the send queue and may be left at once"`
	UnsignaledErrorSilent bool `imitates:"err/1" does:"an unsignaled request that fails completes nothing"`
	LatePlacement         bool `imitates:"rc/wr/6, cq/10" does:"data are in place only after the completion"`
	ReceivesSwapped       bool `imitates:"cq/2" does:"every second receive completion overtakes the one before"`

	// Unreliable services.
	UCLossLocksUp      bool `imitates:"R5" does:"a lost packet stops a UC QP for good"`
	UDOversizeCut      bool `imitates:"R10" does:"a datagram beyond the MTU leaves truncated"`
	AHOtherPD          bool `imitates:"R15" does:"address handles of other domains are used"`
	PrivilegedQKey     bool `imitates:"R36" does:"a Q_Key with the high bit set is sent as posted"`
	UCLosesNext        bool `imitates:"R39" does:"the first good UC message after a damaged one is lost too"`
	UDLongKillsQP      bool `imitates:"R43" does:"a datagram longer than the receive buffer brings the QP down"`
	GSIAckReq          bool `imitates:"R45" does:"CM datagrams carry AckReq"`
	NoTClassInArea     bool `imitates:"irdma" does:"the header area of datagrams lacks the traffic class"`
	SourceUnchecked    bool `imitates:"pkt/addr/2" does:"packets from any address are taken for the connection's"`
	UCReadsSent        bool `imitates:"uc/8" does:"a READ posted to a UC QP is sent"`
	UCErrorIsFatal     bool `imitates:"uc/9, rxe" does:"a local error takes a UC QP to ERR"`
	UCDropsFatal       bool `imitates:"uc/5, uc/10" does:"what UC is to drop or may repeat brings the QP down"`
	UCPartialDelivered bool `imitates:"uc/2" does:"a UC message that lost a packet is delivered with a hole"`
	UCStrictPSN        bool `imitates:"uc/4" does:"a UC message that does not begin at the expected PSN is dropped"`
	AreaMissing        bool `imitates:"ud/1, ud/10, cq/9" does:"datagrams are delivered without their header area"`
	UDLongConsumes     bool `imitates:"ud/6" does:"a datagram longer than the receive uses it up"`
	MulticastOneCopy   bool `imitates:"ud/13" does:"a multicast reaches one QP only"`

	// Packets, the port and congestion.
	ICRCWrong              bool `imitates:"R8" does:"the ICRC is computed without masking variant fields"`
	NoCongestion           bool `imitates:"R16" does:"CNPs are neither sent nor heeded"`
	FlushICRCDoubled       bool `imitates:"R35" does:"FLUSH counts its headers twice in the ICRC"`
	ECNFromTClass          bool `imitates:"R44" does:"the ECN bits come from the traffic class"`
	ICRCIgnored            bool `imitates:"icrc/2" does:"the ICRC of received packets is not checked"`
	FixedHopLimit          bool `imitates:"rxe" does:"the hop limit is always 64"`
	NoCreditReporting      bool `imitates:"rxe" does:"credits are never advertised"`
	NoCreditHeeding        bool `imitates:"rxe" does:"received credits are ignored"`
	CNPBurst               bool `imitates:"ecn/2" does:"every marked packet is answered with a CNP"`
	CNPOnNAK               bool `imitates:"ConnectX-5, ConnectX-6" does:"a sequence NAK is accompanied by a CNP"`
	CNPPerPort             bool `imitates:"NIC mode" does:"all QPs of the port share one CNP interval"`
	CNPPerPeer             bool `imitates:"NIC mode" does:"all QPs between two addresses share one CNP interval"`
	MarkedDropped          bool `imitates:"ecn/1" does:"a marked packet is answered with a CNP and dropped"`
	CNPSlowsAll            bool `imitates:"ecn/3" does:"a CNP slows every QP of the port"`
	RateNeverRecovers      bool `imitates:"ecn/4" does:"a QP that was slowed stays slow"`
	KeysIgnored            bool `imitates:"bth/pkey/1, bth/pkey/2, ud/2, ud/4" does:"neither P_Keys nor Q_Keys of received packets are checked"`
	KeyViolationsUncounted bool `imitates:"bth/pkey/1, ud/2" does:"packets refused for their keys are not counted"`
	PKeyExact              bool `imitates:"bth/pkey/2, bth/pkey/3" does:"P_Keys are compared bit by bit with the first of the table"`
	PortEventsMissing      bool `imitates:"async/3" does:"the port does not report that its link went or came"`
	RemovedAddressUsed     bool `imitates:"async/4" does:"an address that was taken away still sends and receives"`
	CNPCounterStuck        bool `imitates:"E810" does:"the counter of CNPs sent stands still"`
	ImpliedNAKCounterStuck bool `imitates:"ConnectX-4 Lx" does:"the counter of implied NAKs stands still"`

	// Queues switches off checks of completion and receive queues.
	Queues nic.Defects
	// Memory switches off checks of keys, windows and ranges.
	Memory nic.MemoryDefects
}
