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
	LimitsOverstated bool   `imitates:"mlx4, irdma" does:"a device makes fewer objects than it claims"`
	PortUnchecked    bool   `imitates:"ibv_query_port(3)" does:"a port that there is not is answered for like port 1"`
	PortMTUsSwapped  bool   `imitates:"ibv_query_port(3)" does:"the active MTU is above the largest"`
	TablesEndless    bool   `imitates:"ibv_query_gid(3), ibv_query_pkey(3)" does:"the GID and P_Key tables have no end"`
	GIDsWrong        bool   `imitates:"ibv_query_gid(3)" does:"the GID table names other addresses"`
	ClaimsAndRefuses bool   `imitates:"ibv_query_device(3)" does:"what is claimed is refused: windows, SRQs, XRC, addresses, resizing, the connection manager"`
	KindsUnchecked   bool   `imitates:"ibv_create_qp(3), ibv_alloc_mw(3)" does:"unknown kinds of QPs, windows and SRQs are made as known ones"`
	CountersShuffled bool   `imitates:"rdma-statistic(8)" does:"the order of counters changes"`
	CounterStuck     string `imitates:"E810, ConnectX-4 Lx" does:"a counter of the device stands still: CounterStuck=NAME"`
	CountersReset    bool   `imitates:"rdma-statistic(8)" does:"reading the counters clears them"`

	// Life of objects.
	BusyClosed         bool `imitates:"ibv_alloc_pd(3), ibv_create_cq(3), ibv_create_srq(3)" does:"objects in use can be closed"`
	ClosedAnswers      bool `imitates:"ibv_create_qp(3)" does:"a closed object goes on answering"`
	ClosesTwice        bool `imitates:"ibv_create_qp(3)" does:"objects can be closed again and again"`
	ClosedCount        bool `imitates:"ibv_query_device(3)" does:"closed objects count against the limits: of every kind there are 512"`
	DeviceCloseShallow bool `imitates:"ibv_open_device(3)" does:"closing the device leaves its objects open"`
	CloseLeavesWaiting bool `imitates:"ibv_create_comp_channel(3)" does:"who waits is not told of a close"`
	ObjectsUnchecked   bool `imitates:"ibv_create_qp(3)" does:"missing objects, and objects of another device, are taken"`
	WaitImpatient      bool `imitates:"ibv_get_cq_event(3), ibv_get_async_event(3)" does:"waiting calls do not wait"`

	// Memory and windows.
	MRAddrIgnored       bool `imitates:"ibv_reg_mr(3)" does:"the address that a region is to have is ignored"`
	MRKeysRepeat        bool `imitates:"ibv_reg_mr(3)" does:"regions report the keys of the first of their domain"`
	MRAccessUnchecked   bool `imitates:"ibv_reg_mr(3)" does:"remote write and atomic need no local write"`
	HintsRefused        bool `imitates:"ibv_reg_mr(3)" does:"flags that a device may ignore are refused"`
	LocalWriteUnchecked bool `imitates:"ibv_reg_mr(3)" does:"memory that is only to be read is written"`
	DeregOverlapping    bool `imitates:"ibv_reg_mr(3)" does:"closing a region closes those that overlap it"`
	BindKeepsKey        bool `imitates:"ibv_bind_mw(3)" does:"a bind does not change the key that a type 1 window reports"`
	MWKeyStale          bool `imitates:"ibv_bind_mw(3)" does:"a window does not tell its new key"`
	MWTypesMixed        bool `imitates:"ibv_bind_mw(3), ibv_post_send(3)" does:"each way of binding takes windows of either type"`
	BoundMWBusy         bool `imitates:"ibv_alloc_mw(3)" does:"a bound window cannot be freed"`
	LocalInvNoop        bool `imitates:"ibv_post_send(3)" does:"a local invalidate invalidates nothing"`

	// Completion queues and channels.
	CQDepthUnchecked   bool `imitates:"ibv_create_cq(3)" does:"any depth of a CQ is taken"`
	CQDepthShort       bool `imitates:"ibv_create_cq(3)" does:"a CQ is half as deep as was asked for"`
	PollEmptyFails     bool `imitates:"ibv_poll_cq(3)" does:"polling an empty CQ is an error"`
	PollReversed       bool `imitates:"ibv_poll_cq(3)" does:"completions that are polled together come newest first"`
	PollDiscards       bool `imitates:"ibv_poll_cq(3)" does:"completions that did not fit the poll are lost"`
	CQsSwapped         bool `imitates:"ibv_create_qp(3)" does:"sends complete on the receive CQ, and receives on the send CQ"`
	ResizeLoses        bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ loses what is in it"`
	ResizeUnchecked    bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ to less than it holds, or can hold, reports success"`
	ResizeNoop         bool `imitates:"ibv_resize_cq(3)" does:"resizing a CQ changes nothing"`
	ArmsWithoutChannel bool `imitates:"rxe, mlx4, mlx5, irdma" does:"a CQ without channel can be armed"`
	EventsHalved       bool `imitates:"ibv_get_cq_event(3)" does:"every second completion event is lost"`
	EventsLate         bool `imitates:"ibv_get_cq_event(3)" does:"waiting for a completion event ends a minute after the event has come"`
	ArmedFromBirth     bool `imitates:"ibv_req_notify_cq(3)" does:"a CQ is armed when it is made"`
	ArmLooksBack       bool `imitates:"ibv_req_notify_cq(3)" does:"arming reports completions of before"`
	SolicitedIsAny     bool `imitates:"ibv_req_notify_cq(3)" does:"arming for solicited completions arms for all"`
	SolicitedMisses    bool `imitates:"ibv_req_notify_cq(3)" does:"arming for solicited completions does nothing"`
	ArmsCount          bool `imitates:"ibv_req_notify_cq(3)" does:"a CQ reports as often as it was armed"`
	EventNamesFirst    bool `imitates:"ibv_get_cq_event(3)" does:"a channel names its first CQ always"`

	// Queue pairs.
	CapsShort            bool `imitates:"ibv_create_qp(3), ibv_create_srq(3)" does:"QPs and SRQs get half of what was asked for"`
	QPNsRepeat           bool `imitates:"ibv_create_qp(3)" does:"QPs report the number of the first"`
	ModifyLies           bool `imitates:"ibv_modify_qp(3)" does:"a refused modify reports success"`
	RefusalKills         bool `imitates:"ibv_modify_qp(3)" does:"a refused modify takes the QP to ERR"`
	OptionalAttrsRefused bool `imitates:"ibv_modify_qp(3)" does:"attributes that a transition need not have are refused"`
	QueryForgets         bool `imitates:"ibv_query_qp(3)" does:"a query tells state, sizes and nothing else"`
	QueryStale           bool `imitates:"qp/10" does:"a query tells the state and the PSNs that were set"`
	ResetReadsInit       bool `imitates:"ibv_query_qp(3)" does:"RESET is reported as INIT"`
	ResetFlushes         bool `imitates:"ibv_modify_qp(3)" does:"a QP that is reset flushes its queues"`
	ErrorIsFinal         bool `imitates:"ibv_modify_qp(3)" does:"a failed QP cannot be reset"`
	BusyQPStays          bool `imitates:"ibv_create_qp(3)" does:"a QP with receives that were not used cannot be closed"`

	// Requests.
	FenceIgnored          bool `imitates:"cq/3, rfc5040/5.5/10" does:"the fence is ignored"`
	AlwaysFenced          bool `imitates:"cq/4" does:"every request waits for earlier READs and atomics"`
	SignalAllIgnored      bool `imitates:"cq/5" does:"SignalAll is ignored"`
	SignalsAll            bool `imitates:"ibv_post_send(3)" does:"every request completes"`
	BadPostsSwallowed     bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"requests that are to be refused vanish"`
	PostCountWrong        bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"a post that fails in the middle says that nothing was taken"`
	FullIsInvalid         bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"a full queue is called an invalid argument"`
	RecvNeedsReady        bool `imitates:"ibv_post_recv(3)" does:"receives are refused before RTR"`
	SRQBypassed           bool `imitates:"ibv_post_recv(3)" does:"a QP on an SRQ takes receives, for the SRQ"`
	SGECut                bool `imitates:"ibv_post_send(3), ibv_post_recv(3)" does:"scatter/gather lists that are too long are cut"`
	SGEClamped            bool `imitates:"ibv_post_send(3)" does:"list entries that leave their region are cut to it"`
	SGEsReversed          bool `imitates:"ibv_post_send(3)" does:"scatter/gather lists are taken from the end"`
	InlineLate            bool `imitates:"ibv_post_send(3)" does:"inline data is read after the post has returned"`
	InlineCut             bool `imitates:"ibv_post_send(3)" does:"inline data beyond the limit is cut"`
	EmptySendRefused      bool `imitates:"ibv_post_send(3)" does:"messages without payload are refused"`
	OpsDowngraded         bool `imitates:"ibv_post_send(3)" does:"operations that the service does not have are sent as a SEND"`
	AtomicOperandsSwapped bool `imitates:"ibv_post_send(3)" does:"the operands of compare and swap are exchanged"`
	AtomicAddendCut       bool `imitates:"ibv_post_send(3)" does:"only the low half of an addend counts"`
	AtomicSinkCut         bool `imitates:"ibv_post_send(3)" does:"atomics take longer local memory"`
	AtomicAligned         bool `imitates:"ibv_post_send(3)" does:"addresses of atomics are rounded down"`
	AHsAnyDomain          bool `imitates:"ibv_create_ah(3)" does:"address handles of other domains are used"`

	// Completions.
	SparseCompletions    bool `imitates:"rc/wr/5, rc/inv/2, ud/9, err/4, cq/9" does:"completions are filled in halfway"`
	WCOpcodeZero         bool `imitates:"ibv_poll_cq(3)" does:"every completion calls itself a SEND"`
	WCLengthZero         bool `imitates:"ibv_poll_cq(3)" does:"no completion tells its length"`
	WCFlagsLost          bool `imitates:"ibv_poll_cq(3)" does:"completions do not say what they carry"`
	ImmSwapped           bool `imitates:"ibv_poll_cq(3)" does:"immediate data is byte-swapped"`
	WCQPNWrong           bool `imitates:"ibv_poll_cq(3)" does:"completions name the first QP of the device"`
	SrcQPLost            bool `imitates:"ibv_poll_cq(3)" does:"completions do not name the sender"`
	WRID32               bool `imitates:"ibv_poll_cq(3)" does:"the upper half of the ID of a request is lost"`
	WCDoubled            bool `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ comes twice"`
	WCLost               bool `imitates:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is lost"`
	FlushReversed        bool `imitates:"rc/seq/9, qp/7" does:"receives and sends of a failed QP are flushed newest first"`
	FlushesLost          bool `imitates:"ibv_modify_qp(3)" does:"flushed requests do not complete"`
	LengthErrorsHidden   bool `imitates:"ibv_poll_cq(3)" does:"a message that did not fit completes with success"`
	UnsignaledErrorsLost bool `imitates:"ibv_post_send(3)" does:"unsignaled requests that fail complete nothing"`

	// SRQs, address handles and XRC.
	SRQUnchecked    bool `imitates:"srq/3, srq/8" does:"limits and sizes of SRQs are not checked, and QPs on them take receives"`
	SRQModifyLies   bool `imitates:"ibv_modify_srq(3)" does:"a refused change of an SRQ reports success"`
	SRQResizeNoop   bool `imitates:"ibv_modify_srq(3)" does:"resizing an SRQ changes nothing"`
	SRQNumberWrong  bool `imitates:"ibv_get_srq_num(3)" does:"an SRQ reports another number"`
	AHAttrForgotten bool `imitates:"ibv_create_ah(3)" does:"an address handle forgets how it was made"`
	AHUnchecked     bool `imitates:"ibv_create_ah(3)" does:"wrong ports and table entries in an address are taken"`
	XRCTargetDies   bool `imitates:"xrc/3" does:"an XRC target QP dies with the handle that made it"`
	OpenQPAny       bool `imitates:"ibv_open_qp(3)" does:"any number opens a QP"`

	// Asynchronous events.
	AsyncEventsLost   bool `imitates:"ibv_get_async_event(3)" does:"asynchronous events are lost"`
	AsyncNamesNothing bool `imitates:"ibv_get_async_event(3)" does:"asynchronous events do not say what they are about"`

	// Connection management.
	ListenAddrZero       bool `imitates:"rdma_get_src_port(3)" does:"a listener does not tell the port that was chosen for it"`
	PortsShared          bool `imitates:"rdma_bind_addr(3)" does:"a port in use can be listened to again"`
	ListenerServesOne    bool `imitates:"rdma_listen(3)" does:"a listener hands out one request"`
	AnswersTwice         bool `imitates:"rdma_accept(3), rdma_reject(3)" does:"a request can be answered again"`
	CMTakesAnyQP         bool `imitates:"rdma_connect(3), rdma_accept(3)" does:"a QP in any state can be connected"`
	ConnParamLost        bool `imitates:"rdma_get_cm_event(3)" does:"what the peer asked for or granted is not told"`
	PrivateDataLost      bool `imitates:"rdma_get_cm_event(3)" does:"private data does not arrive"`
	PrivateDataUnchecked bool `imitates:"rdma_connect(3), rdma_accept(3), rdma_reject(3)" does:"private data that is too long is cut"`
	RemoteUnknown        bool `imitates:"rdma_get_peer_addr(3)" does:"the peer's address is not told"`
	RejectIsTimeout      bool `imitates:"rdma_reject(3)" does:"a refused connection looks like silence"`
	CMTimeoutsTenfold    bool `imitates:"rdma_resolve_addr(3)" does:"the connection manager waits ten times as long"`
	DisconnectSilent     bool `imitates:"rdma_disconnect(3)" does:"a disconnect does nothing"`
	EndUnnoticed         bool `imitates:"rdma_disconnect(3)" does:"the end of a connection is not noticed"`
	ResolvedKeyLost      bool `imitates:"rdma_get_cm_event(3)" does:"a resolved service has no key"`

	// Linux's soft-RoCE and soft-iWARP.
	GRHFlagOnConnected   bool `imitates:"rxe" does:"receive completions of connections claim a header area"`
	RecvErrorIsQPOp      bool `imitates:"rc/send/2, rxe" does:"a receive with a bad key completes as an operation error"`
	RdAtomicRoundsUp     bool `imitates:"R27" does:"max_rd_atomic is rounded up to a power of two"`
	RefusedWRStays       bool `imitates:"R37" does:"a send posted too early is refused but stays queued"`
	SQNeverDrains        bool `imitates:"R38" does:"a send queue in SQD never reports that it is drained"`
	NoQPEvents           bool `imitates:"R41" does:"no COMM_EST, QP_ACCESS_ERR, QP_REQ_ERR"`
	NoLastWQEEvent       bool `imitates:"R41, srq/5" does:"a failed QP on an SRQ does not report its last receive"`
	ValuesUnchecked      bool `imitates:"rxe" does:"a P_Key index, a path MTU of 0, a responder depth, an RNR timer or a retry count that cannot be is taken"`
	RTRIgnored           bool `imitates:"siw" does:"a modify to RTR succeeds and changes nothing"`
	InvalidateUnreported bool `imitates:"siw" does:"a receive completion does not say what the sender invalidated"`
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
