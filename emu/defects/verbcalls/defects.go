package verbcalls

import (
	"reflect"
	"strings"

	"github.com/fabrictest/fabrictest/emu/defects"
)

// Defects are the defects that a program can be shown whatever the device behind
// it is. Tags say what each does, and whose defect it is or which requirement or
// manual page it breaks.
type Defects struct {
	// Device, port and tables.
	LimitsForgotten  bool   `imitates:"ibv_query_device(3)" does:"limits of the device are reported as 0"`
	LimitsOverstated bool   `imitates:"mlx4, irdma" does:"a device creates fewer objects than its limits allow"`
	PortUnchecked    bool   `imitates:"ibv_query_port(3)" does:"a query of a port that does not exist returns port 1"`
	PortMTUsSwapped  bool   `imitates:"ibv_query_port(3)" does:"the active MTU is larger than the maximum"`
	TablesEndless    bool   `imitates:"ibv_query_gid(3), ibv_query_pkey(3)" does:"any index of the GID and P_Key tables is valid"`
	GIDsWrong        bool   `imitates:"ibv_query_gid(3)" does:"the GID table has wrong addresses"`
	ClaimsAndRefuses bool   `imitates:"ibv_query_device(3)" does:"windows, SRQs, XRC, address handles, resizing and the connection manager are reported as supported but refused"`
	KindsUnchecked   bool   `imitates:"ibv_create_qp(3), ibv_alloc_mw(3)" does:"unknown types of QPs, windows and SRQs are created as known ones"`
	CountersShuffled bool   `imitates:"rdma-statistic(8)" does:"the order of counters changes"`
	CounterStuck     string `imitates:"E810, ConnectX-4 Lx" does:"a counter of the device does not change: CounterStuck=NAME"`
	CountersReset    bool   `imitates:"rdma-statistic(8)" does:"reading the counters clears them"`

	// Life of objects.
	BusyClosed         bool `imitates:"ibv_alloc_pd(3), ibv_create_cq(3), ibv_create_srq(3)" does:"objects in use can be closed"`
	ClosedAnswers      bool `imitates:"ibv_create_qp(3)" does:"a closed object can still be used"`
	ClosesTwice        bool `imitates:"ibv_create_qp(3)" does:"objects can be closed again and again"`
	ClosedCount        bool `imitates:"ibv_query_device(3)" does:"closed objects count against the limits, which are 512 of every type"`
	DeviceCloseShallow bool `imitates:"ibv_open_device(3)" does:"closing the device leaves its objects open"`
	CloseLeavesWaiting bool `imitates:"ibv_create_comp_channel(3)" does:"closing an object does not wake its waiters"`
	ObjectsUnchecked   bool `imitates:"ibv_create_qp(3)" does:"nil objects, and objects of another device, are accepted"`
	WaitImpatient      bool `imitates:"ibv_get_cq_event(3), ibv_get_async_event(3)" does:"blocking calls do not block"`

	// Memory and windows.
	MRAddrIgnored       bool `imitates:"ibv_reg_mr(3)" does:"the requested address of a region is ignored"`
	MRKeysRepeat        bool `imitates:"ibv_reg_mr(3)" does:"regions report the keys of the first region of their domain"`
	MRAccessUnchecked   bool `imitates:"ibv_reg_mr(3)" does:"remote write and atomic need no local write"`
	HintsRefused        bool `imitates:"ibv_reg_mr(3)" does:"flags that a device may ignore are refused"`
	LocalWriteUnchecked bool `imitates:"ibv_reg_mr(3)" does:"read-only memory is written"`
	DeregOverlapping    bool `imitates:"ibv_reg_mr(3)" does:"closing a region closes the regions that overlap it"`
	BindKeepsKey        bool `imitates:"ibv_bind_mw(3)" does:"a bind does not change the key that a type 1 window reports"`
	MWKeyStale          bool `imitates:"ibv_bind_mw(3)" does:"a window does not report its new key"`
	MWTypesMixed        bool `imitates:"ibv_bind_mw(3), ibv_post_send(3)" does:"each way of binding accepts windows of either type"`
	BoundMWBusy         bool `imitates:"ibv_alloc_mw(3)" does:"a bound window cannot be freed"`
	LocalInvNoop        bool `imitates:"ibv_post_send(3)" does:"a local invalidate invalidates nothing"`

	// Completion queues and channels.
	CQDepthUnchecked   bool `imitates:"ibv_create_cq(3)" does:"any depth of a CQ is accepted"`
	CQDepthShort       bool `imitates:"ibv_create_cq(3)" does:"a CQ is half as deep as requested"`
	PollEmptyFails     bool `imitates:"ibv_poll_cq(3)" does:"polling an empty CQ is an error"`
	PollReversed       bool `imitates:"ibv_poll_cq(3)" does:"one poll returns its completions newest first"`
	PollDiscards       bool `imitates:"ibv_poll_cq(3)" does:"completions that do not fit into one poll are lost"`
	CQsSwapped         bool `imitates:"ibv_create_qp(3)" does:"sends complete on the receive CQ, and receives on the send CQ"`
	ResizeLoses        bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ loses its completions"`
	ResizeUnchecked    bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ below its number of completions, or above the limit, reports success"`
	ResizeNoop         bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ has no effect"`
	ArmsWithoutChannel bool `imitates:"rxe, mlx4, mlx5, irdma" does:"a CQ without channel can be armed"`
	EventsHalved       bool `imitates:"ibv_get_cq_event(3)" does:"every second completion event is lost"`
	EventsLate         bool `imitates:"ibv_get_cq_event(3)" does:"a wait for a completion event returns one minute after the event"`
	ArmedFromBirth     bool `imitates:"ibv_req_notify_cq(3)" does:"a CQ is armed when it is created"`
	ArmLooksBack       bool `imitates:"ibv_req_notify_cq(3)" does:"arming a CQ reports earlier completions"`
	SolicitedIsAny     bool `imitates:"ibv_req_notify_cq(3)" does:"arming for solicited completions arms for all"`
	SolicitedMisses    bool `imitates:"ibv_req_notify_cq(3)" does:"arming for solicited completions has no effect"`
	ArmsCount          bool `imitates:"ibv_req_notify_cq(3)" does:"a CQ reports as often as it was armed"`
	EventNamesFirst    bool `imitates:"ibv_get_cq_event(3)" does:"every event of a channel names its first CQ"`

	// Queue pairs.
	CapsShort            bool `imitates:"ibv_create_qp(3), ibv_create_srq(3)" does:"QPs and SRQs get half of the requested capacities"`
	QPNsRepeat           bool `imitates:"ibv_create_qp(3)" does:"every QP reports the number of the first"`
	ModifyLies           bool `imitates:"ibv_modify_qp(3)" does:"a refused modify reports success"`
	RefusalKills         bool `imitates:"ibv_modify_qp(3)" does:"a refused modify takes the QP to ERR"`
	OptionalAttrsRefused bool `imitates:"ibv_modify_qp(3)" does:"attributes that a transition need not have are refused"`
	QueryForgets         bool `imitates:"ibv_query_qp(3)" does:"a query returns only the state and the capacities"`
	QueryStale           bool `imitates:"qp/10" does:"a query returns the state and the PSNs as last set"`
	ResetReadsInit       bool `imitates:"ibv_query_qp(3)" does:"RESET is reported as INIT"`
	ResetFlushes         bool `imitates:"ibv_modify_qp(3)" does:"a QP that is reset flushes its queues"`
	ErrorIsFinal         bool `imitates:"ibv_modify_qp(3)" does:"a failed QP cannot be reset"`
	BusyQPStays          bool `imitates:"ibv_create_qp(3)" does:"a QP with posted receives cannot be closed"`

	// Requests.
	FenceIgnored          bool `imitates:"cq/3, rfc5040/5.5/10" does:"the fence is ignored"`
	AlwaysFenced          bool `imitates:"cq/4" does:"every request waits for earlier READs and atomics"`
	SignalAllIgnored      bool `imitates:"cq/5" does:"SignalAll is ignored"`
	SignalsAll            bool `imitates:"ibv_post_send(3)" does:"every request completes"`
	BadPostsSwallowed     bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"invalid requests are dropped without an error"`
	PostCountWrong        bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"a post that fails in the middle reports that no request was accepted"`
	FullIsInvalid         bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"a full queue is reported as an invalid argument"`
	RecvNeedsReady        bool `imitates:"ibv_post_recv(3)" does:"receives are refused before RTR"`
	SRQBypassed           bool `imitates:"ibv_post_recv(3)" does:"a QP on an SRQ accepts receives, and posts them to the SRQ"`
	SGECut                bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"scatter/gather lists that are too long are truncated"`
	SGEClamped            bool `imitates:"ibv_post_send(3)" does:"SGEs that exceed their region are truncated"`
	SGEsReversed          bool `imitates:"ibv_post_send(3)" does:"scatter/gather lists are processed in reverse"`
	InlineLate            bool `imitates:"ibv_post_send(3)" does:"inline data is read after the post has returned"`
	InlineCut             bool `imitates:"ibv_post_send(3)" does:"inline data beyond the limit is truncated"`
	EmptySendRefused      bool `imitates:"ibv_post_send(3)" does:"messages without payload are refused"`
	OpsDowngraded         bool `imitates:"ibv_post_send(3)" does:"operations that the transport does not support are sent as a SEND"`
	AtomicOperandsSwapped bool `imitates:"ibv_post_send(3)" does:"the operands of compare and swap are swapped"`
	AtomicAddendCut       bool `imitates:"ibv_post_send(3)" does:"only the low half of the addend is used"`
	AtomicSinkCut         bool `imitates:"ibv_post_send(3)" does:"atomics accept local memory of more than eight bytes"`
	AtomicAligned         bool `imitates:"ibv_post_send(3)" does:"addresses of atomics are rounded down"`
	AHsAnyDomain          bool `imitates:"ibv_create_ah(3)" does:"address handles of other domains are used"`

	// Completions.
	SparseCompletions    bool `imitates:"rc/wr/5, rc/inv/2, ud/9, err/4, cq/9" does:"some fields of completions are not set"`
	WCOpcodeZero         bool `imitates:"ibv_poll_cq(3)" does:"every completion has the opcode SEND"`
	WCLengthZero         bool `imitates:"ibv_poll_cq(3)" does:"every completion has length 0"`
	WCFlagsLost          bool `imitates:"ibv_poll_cq(3)" does:"completions have no flags"`
	ImmSwapped           bool `imitates:"ibv_poll_cq(3)" does:"immediate data is byte-swapped"`
	WCQPNWrong           bool `imitates:"ibv_poll_cq(3)" does:"completions have the number of the first QP of the device"`
	SrcQPLost            bool `imitates:"ibv_poll_cq(3)" does:"completions have no source QP"`
	WRID32               bool `imitates:"ibv_poll_cq(3)" does:"the upper half of the ID of a request is lost"`
	WCDoubled            bool `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is reported twice"`
	WCLost               bool `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is lost"`
	FlushReversed        bool `imitates:"rc/seq/9, qp/7" does:"receives and sends of a failed QP are flushed newest first"`
	FlushesLost          bool `imitates:"ibv_modify_qp(3)" does:"flushed requests do not complete"`
	LengthErrorsHidden   bool `imitates:"ibv_poll_cq(3)" does:"a message that exceeds its receive completes with success"`
	UnsignaledErrorsLost bool `imitates:"ibv_post_send(3)" does:"unsignaled requests that fail have no completion"`

	// SRQs, address handles and XRC.
	SRQUnchecked    bool `imitates:"srq/3, srq/8" does:"limits and sizes of SRQs are not checked, and QPs on them accept receives"`
	SRQModifyLies   bool `imitates:"ibv_modify_srq(3)" does:"a refused change of an SRQ reports success"`
	SRQResizeNoop   bool `imitates:"ibv_modify_srq(3)" does:"resizing an SRQ has no effect"`
	SRQNumberWrong  bool `imitates:"ibv_get_srq_num(3)" does:"an SRQ reports another number"`
	AHAttrForgotten bool `imitates:"ibv_create_ah(3)" does:"an address handle does not report its attributes"`
	AHUnchecked     bool `imitates:"ibv_create_ah(3)" does:"invalid ports and GID indices in an address are accepted"`
	XRCTargetDies   bool `imitates:"xrc/3" does:"an XRC target QP is destroyed with the handle that created it"`
	OpenQPAny       bool `imitates:"ibv_open_qp(3)" does:"opening an XRC QP accepts any QP number"`

	// Asynchronous events.
	AsyncEventsLost   bool `imitates:"ibv_get_async_event(3)" does:"asynchronous events are lost"`
	AsyncNamesNothing bool `imitates:"ibv_get_async_event(3)" does:"asynchronous events do not name their object"`

	// Connection management.
	ListenAddrZero       bool `imitates:"rdma_get_src_port(3)" does:"a listener does not report the port that was chosen for it"`
	PortsShared          bool `imitates:"rdma_bind_addr(3)" does:"a port in use can be listened to again"`
	ListenerServesOne    bool `imitates:"rdma_listen(3)" does:"a listener accepts only one request"`
	AnswersTwice         bool `imitates:"rdma_accept(3), rdma_reject(3)" does:"a request can be answered again"`
	CMTakesAnyQP         bool `imitates:"rdma_connect(3), rdma_accept(3)" does:"a QP in any state can be connected"`
	ConnParamLost        bool `imitates:"rdma_get_cm_event(3)" does:"the connection parameters of the peer are not reported"`
	PrivateDataLost      bool `imitates:"rdma_get_cm_event(3)" does:"private data does not arrive"`
	PrivateDataUnchecked bool `imitates:"rdma_connect(3), rdma_accept(3), rdma_reject(3)" does:"private data that is too long is truncated"`
	RemoteUnknown        bool `imitates:"rdma_get_peer_addr(3)" does:"the peer's address is not reported"`
	RejectIsTimeout      bool `imitates:"rdma_reject(3)" does:"a rejected connection is reported as a timeout"`
	CMTimeoutsTenfold    bool `imitates:"rdma_resolve_addr(3)" does:"the connection manager waits ten times as long"`
	DisconnectSilent     bool `imitates:"rdma_disconnect(3)" does:"a disconnect has no effect"`
	EndUnnoticed         bool `imitates:"rdma_disconnect(3)" does:"the end of a connection is not reported"`
	ResolvedKeyLost      bool `imitates:"rdma_get_cm_event(3)" does:"a resolved service has no key"`

	// Linux's soft-RoCE and soft-iWARP.
	GRHFlagOnConnected   bool `imitates:"rxe" does:"receive completions of connected QPs have the GRH flag"`
	RecvErrorIsQPOp      bool `imitates:"rc/send/2, rxe" does:"a receive with a bad key completes as an operation error"`
	RdAtomicRoundsUp     bool `imitates:"R27" does:"max_rd_atomic is rounded up to a power of two"`
	RefusedWRStays       bool `imitates:"R37" does:"a send posted too early is refused but stays queued"`
	SQNeverDrains        bool `imitates:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents           bool `imitates:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR"`
	NoLastWQEEvent       bool `imitates:"R41, srq/5" does:"a failed QP on an SRQ does not report its last receive"`
	ValuesUnchecked      bool `imitates:"rxe" does:"an invalid P_Key index, path MTU, responder depth, RNR timer or retry count is accepted"`
	RTRIgnored           bool `imitates:"siw" does:"a modify to RTR succeeds and has no effect"`
	InvalidateUnreported bool `imitates:"siw" does:"a receive completion does not report the invalidated key"`
}

// CounterStuck is the one defect that takes a name: that of a counter.
const CounterStuck = "CounterStuck"

// AllDefects lists every defect in the order of the struct, but for CounterStuck=NAME,
// which is last.
func AllDefects() []defects.Info {
	stuck, _ := reflect.TypeFor[Defects]().FieldByName(CounterStuck)
	return append(defects.All(new(Defects)), defects.Info{
		Name: CounterStuck + "=NAME", Imitates: stuck.Tag.Get("imitates"), Does: stuck.Tag.Get("does"),
	})
}

// Set switches a defect on or off by its name, CounterStuck with that of the counter:
// of those one stands still at a time.
func (q *Defects) Set(spec string, on bool) error {
	name, counter, _ := strings.Cut(spec, "=")
	if name != CounterStuck || counter == "" {
		return defects.Set(q, spec, on)
	}
	if q.CounterStuck = ""; on {
		q.CounterStuck = counter
	}
	return nil
}

// Names lists the defects that are switched on.
func (q *Defects) Names() []string {
	names := defects.On(q)
	if q.CounterStuck != "" {
		names = append(names, CounterStuck+"="+q.CounterStuck)
	}
	return names
}
