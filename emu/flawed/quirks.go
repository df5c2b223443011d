package flawed

import (
	"reflect"
	"strings"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Quirks are the defects that a program can be shown whatever the device behind
// it is. Tags say what each does, and whose defect it is or which requirement or
// manual page it breaks.
type Quirks struct {
	// Device, port and tables.
	LimitsForgotten  bool   `defect:"ibv_query_device(3)" does:"limits of the device are reported as 0"`
	LimitsOverstated bool   `defect:"mlx4, irdma" does:"a device makes fewer objects than it claims"`
	PortUnchecked    bool   `defect:"ibv_query_port(3)" does:"a port that there is not is answered for like port 1"`
	PortMTUsSwapped  bool   `defect:"ibv_query_port(3)" does:"the active MTU is above the largest"`
	TablesEndless    bool   `defect:"ibv_query_gid(3), ibv_query_pkey(3)" does:"the GID and P_Key tables have no end"`
	GIDsWrong        bool   `defect:"ibv_query_gid(3)" does:"the GID table names other addresses"`
	ClaimsAndRefuses bool   `defect:"ibv_query_device(3)" does:"what is claimed is refused: windows, SRQs, XRC, addresses, resizing, the connection manager"`
	KindsUnchecked   bool   `defect:"ibv_create_qp(3), ibv_alloc_mw(3)" does:"unknown kinds of QPs, windows and SRQs are made as known ones"`
	CountersShuffled bool   `defect:"rdma-statistic(8)" does:"the order of counters changes"`
	CounterStuck     string `defect:"E810, ConnectX-4 Lx" does:"a counter of the device stands still: CounterStuck=NAME"`
	CountersReset    bool   `defect:"rdma-statistic(8)" does:"reading the counters clears them"`

	// Life of objects.
	BusyClosed         bool `defect:"ibv_alloc_pd(3), ibv_create_cq(3), ibv_create_srq(3)" does:"objects in use can be closed"`
	ClosedAnswers      bool `defect:"ibv_create_qp(3)" does:"a closed object goes on answering"`
	ClosesTwice        bool `defect:"ibv_create_qp(3)" does:"objects can be closed again and again"`
	ClosedCount        bool `defect:"ibv_query_device(3)" does:"closed objects count against the limits: of every kind there are 512"`
	DeviceCloseShallow bool `defect:"ibv_open_device(3)" does:"closing the device leaves its objects open"`
	CloseLeavesWaiting bool `defect:"ibv_create_comp_channel(3)" does:"who waits is not told of a close"`
	ObjectsUnchecked   bool `defect:"ibv_create_qp(3)" does:"missing objects, and objects of another device, are taken"`
	WaitImpatient      bool `defect:"ibv_get_cq_event(3), ibv_get_async_event(3)" does:"waiting calls do not wait"`

	// Memory and windows.
	MRAddrIgnored       bool `defect:"ibv_reg_mr(3)" does:"the address that a region is to have is ignored"`
	MRKeysRepeat        bool `defect:"ibv_reg_mr(3)" does:"regions report the keys of the first of their domain"`
	MRAccessUnchecked   bool `defect:"ibv_reg_mr(3)" does:"remote write and atomic need no local write"`
	HintsRefused        bool `defect:"ibv_reg_mr(3)" does:"flags that a device may ignore are refused"`
	LocalWriteUnchecked bool `defect:"ibv_reg_mr(3)" does:"memory that is only to be read is written"`
	DeregOverlapping    bool `defect:"ibv_reg_mr(3)" does:"closing a region closes those that overlap it"`
	BindKeepsKey        bool `defect:"ibv_bind_mw(3)" does:"a bind does not change the key that a type 1 window reports"`
	MWKeyStale          bool `defect:"ibv_bind_mw(3)" does:"a window does not tell its new key"`
	MWTypesMixed        bool `defect:"ibv_bind_mw(3), ibv_post_send(3)" does:"each way of binding takes windows of either type"`
	BoundMWBusy         bool `defect:"ibv_alloc_mw(3)" does:"a bound window cannot be freed"`
	LocalInvNoop        bool `defect:"ibv_post_send(3)" does:"a local invalidate invalidates nothing"`

	// Completion queues and channels.
	CQDepthUnchecked   bool `defect:"ibv_create_cq(3)" does:"any depth of a CQ is taken"`
	CQDepthShort       bool `defect:"ibv_create_cq(3)" does:"a CQ is half as deep as was asked for"`
	PollEmptyFails     bool `defect:"ibv_poll_cq(3)" does:"polling an empty CQ is an error"`
	PollReversed       bool `defect:"ibv_poll_cq(3)" does:"completions that are polled together come newest first"`
	PollDiscards       bool `defect:"ibv_poll_cq(3)" does:"completions that did not fit the poll are lost"`
	CQsSwapped         bool `defect:"ibv_create_qp(3)" does:"sends complete on the receive CQ, and receives on the send CQ"`
	ResizeLoses        bool `defect:"ibv_resize_cq(3)" does:"resizing a CQ loses what is in it"`
	ResizeUnchecked    bool `defect:"ibv_resize_cq(3)" does:"resizing a CQ to less than it holds, or can hold, reports success"`
	ResizeNoop         bool `defect:"ibv_resize_cq(3)" does:"resizing a CQ changes nothing"`
	ArmsWithoutChannel bool `defect:"rxe, mlx4, mlx5, irdma" does:"a CQ without channel can be armed"`
	EventsHalved       bool `defect:"ibv_get_cq_event(3)" does:"every second completion event is lost"`
	EventsLate         bool `defect:"ibv_get_cq_event(3)" does:"waiting for a completion event ends a minute after the event has come"`
	ArmedFromBirth     bool `defect:"ibv_req_notify_cq(3)" does:"a CQ is armed when it is made"`
	ArmLooksBack       bool `defect:"ibv_req_notify_cq(3)" does:"arming reports completions of before"`
	SolicitedIsAny     bool `defect:"ibv_req_notify_cq(3)" does:"arming for solicited completions arms for all"`
	SolicitedMisses    bool `defect:"ibv_req_notify_cq(3)" does:"arming for solicited completions does nothing"`
	ArmsCount          bool `defect:"ibv_req_notify_cq(3)" does:"a CQ reports as often as it was armed"`
	EventNamesFirst    bool `defect:"ibv_get_cq_event(3)" does:"a channel names its first CQ always"`

	// Queue pairs.
	CapsShort            bool `defect:"ibv_create_qp(3), ibv_create_srq(3)" does:"QPs and SRQs get half of what was asked for"`
	QPNsRepeat           bool `defect:"ibv_create_qp(3)" does:"QPs report the number of the first"`
	ModifyLies           bool `defect:"ibv_modify_qp(3)" does:"a refused modify reports success"`
	RefusalKills         bool `defect:"ibv_modify_qp(3)" does:"a refused modify takes the QP to ERR"`
	OptionalAttrsRefused bool `defect:"ibv_modify_qp(3)" does:"attributes that a transition need not have are refused"`
	QueryForgets         bool `defect:"ibv_query_qp(3)" does:"a query tells state, sizes and nothing else"`
	QueryStale           bool `defect:"qp/10" does:"a query tells the state and the PSNs that were set"`
	ResetReadsInit       bool `defect:"ibv_query_qp(3)" does:"RESET is reported as INIT"`
	ResetFlushes         bool `defect:"ibv_modify_qp(3)" does:"a QP that is reset flushes its queues"`
	ErrorIsFinal         bool `defect:"ibv_modify_qp(3)" does:"a failed QP cannot be reset"`
	BusyQPStays          bool `defect:"ibv_create_qp(3)" does:"a QP with receives that were not used cannot be closed"`

	// Requests.
	FenceIgnored          bool `defect:"cq/3, rfc5040/5.5/10" does:"the fence is ignored"`
	AlwaysFenced          bool `defect:"cq/4" does:"every request waits for earlier READs and atomics"`
	SignalAllIgnored      bool `defect:"cq/5" does:"SignalAll is ignored"`
	SignalsAll            bool `defect:"ibv_post_send(3)" does:"every request completes"`
	BadPostsSwallowed     bool `defect:"ibv_post_send(3), ibv_post_recv(3)" does:"requests that are to be refused vanish"`
	PostCountWrong        bool `defect:"ibv_post_send(3), ibv_post_recv(3)" does:"a post that fails in the middle says that nothing was taken"`
	FullIsInvalid         bool `defect:"ibv_post_send(3), ibv_post_recv(3)" does:"a full queue is called an invalid argument"`
	RecvNeedsReady        bool `defect:"ibv_post_recv(3)" does:"receives are refused before RTR"`
	SRQBypassed           bool `defect:"ibv_post_recv(3)" does:"a QP on an SRQ takes receives, for the SRQ"`
	SGECut                bool `defect:"ibv_post_send(3), ibv_post_recv(3)" does:"scatter/gather lists that are too long are cut"`
	SGEClamped            bool `defect:"ibv_post_send(3)" does:"list entries that leave their region are cut to it"`
	SGEsReversed          bool `defect:"ibv_post_send(3)" does:"scatter/gather lists are taken from the end"`
	InlineLate            bool `defect:"ibv_post_send(3)" does:"inline data is read after the post has returned"`
	InlineCut             bool `defect:"ibv_post_send(3)" does:"inline data beyond the limit is cut"`
	EmptySendRefused      bool `defect:"ibv_post_send(3)" does:"messages without payload are refused"`
	OpsDowngraded         bool `defect:"ibv_post_send(3)" does:"operations that the service does not have are sent as a SEND"`
	AtomicOperandsSwapped bool `defect:"ibv_post_send(3)" does:"the operands of compare and swap are exchanged"`
	AtomicAddendCut       bool `defect:"ibv_post_send(3)" does:"only the low half of an addend counts"`
	AtomicSinkCut         bool `defect:"ibv_post_send(3)" does:"atomics take longer local memory"`
	AtomicAligned         bool `defect:"ibv_post_send(3)" does:"addresses of atomics are rounded down"`
	AHsAnyDomain          bool `defect:"ibv_create_ah(3)" does:"address handles of other domains are used"`

	// Completions.
	SparseCompletions    bool `defect:"rc/wr/5, rc/inv/2, ud/9, err/4, cq/9" does:"completions are filled in halfway"`
	WCOpcodeZero         bool `defect:"ibv_poll_cq(3)" does:"every completion calls itself a SEND"`
	WCLengthZero         bool `defect:"ibv_poll_cq(3)" does:"no completion tells its length"`
	WCFlagsLost          bool `defect:"ibv_poll_cq(3)" does:"completions do not say what they carry"`
	ImmSwapped           bool `defect:"ibv_poll_cq(3)" does:"immediate data is byte-swapped"`
	WCQPNWrong           bool `defect:"ibv_poll_cq(3)" does:"completions name the first QP of the device"`
	SrcQPLost            bool `defect:"ibv_poll_cq(3)" does:"completions do not name the sender"`
	WRID32               bool `defect:"ibv_poll_cq(3)" does:"the upper half of the ID of a request is lost"`
	WCDoubled            bool `defect:"ibv_poll_cq(3)" does:"every fourth completion of a CQ comes twice"`
	WCLost               bool `defect:"ibv_poll_cq(3)" does:"every fourth completion of a CQ is lost"`
	FlushReversed        bool `defect:"rc/seq/9, qp/7" does:"receives and sends of a failed QP are flushed newest first"`
	FlushesLost          bool `defect:"ibv_modify_qp(3)" does:"flushed requests do not complete"`
	LengthErrorsHidden   bool `defect:"ibv_poll_cq(3)" does:"a message that did not fit completes with success"`
	UnsignaledErrorsLost bool `defect:"ibv_post_send(3)" does:"unsignaled requests that fail complete nothing"`

	// SRQs, address handles and XRC.
	SRQUnchecked    bool `defect:"srq/3, srq/8" does:"limits and sizes of SRQs are not checked, and QPs on them take receives"`
	SRQModifyLies   bool `defect:"ibv_modify_srq(3)" does:"a refused change of an SRQ reports success"`
	SRQResizeNoop   bool `defect:"ibv_modify_srq(3)" does:"resizing an SRQ changes nothing"`
	SRQNumberWrong  bool `defect:"ibv_get_srq_num(3)" does:"an SRQ reports another number"`
	AHAttrForgotten bool `defect:"ibv_create_ah(3)" does:"an address handle forgets how it was made"`
	AHUnchecked     bool `defect:"ibv_create_ah(3)" does:"wrong ports and table entries in an address are taken"`
	XRCTargetDies   bool `defect:"xrc/3" does:"an XRC target QP dies with the handle that made it"`
	OpenQPAny       bool `defect:"ibv_open_qp(3)" does:"any number opens a QP"`

	// Asynchronous events.
	AsyncEventsLost   bool `defect:"ibv_get_async_event(3)" does:"asynchronous events are lost"`
	AsyncNamesNothing bool `defect:"ibv_get_async_event(3)" does:"asynchronous events do not say what they are about"`

	// Connection management.
	ListenAddrZero       bool `defect:"rdma_get_src_port(3)" does:"a listener does not tell the port that was chosen for it"`
	PortsShared          bool `defect:"rdma_bind_addr(3)" does:"a port in use can be listened to again"`
	ListenerServesOne    bool `defect:"rdma_listen(3)" does:"a listener hands out one request"`
	AnswersTwice         bool `defect:"rdma_accept(3), rdma_reject(3)" does:"a request can be answered again"`
	CMTakesAnyQP         bool `defect:"rdma_connect(3), rdma_accept(3)" does:"a QP in any state can be connected"`
	ConnParamLost        bool `defect:"rdma_get_cm_event(3)" does:"what the peer asked for or granted is not told"`
	PrivateDataLost      bool `defect:"rdma_get_cm_event(3)" does:"private data does not arrive"`
	PrivateDataUnchecked bool `defect:"rdma_connect(3), rdma_accept(3), rdma_reject(3)" does:"private data that is too long is cut"`
	RemoteUnknown        bool `defect:"rdma_get_peer_addr(3)" does:"the peer's address is not told"`
	RejectIsTimeout      bool `defect:"rdma_reject(3)" does:"a refused connection looks like silence"`
	CMTimeoutsTenfold    bool `defect:"rdma_resolve_addr(3)" does:"the connection manager waits ten times as long"`
	DisconnectSilent     bool `defect:"rdma_disconnect(3)" does:"a disconnect does nothing"`
	EndUnnoticed         bool `defect:"rdma_disconnect(3)" does:"the end of a connection is not noticed"`
	ResolvedKeyLost      bool `defect:"rdma_get_cm_event(3)" does:"a resolved service has no key"`
}

// CounterStuck is the one quirk that takes a name: that of a counter.
const CounterStuck = "CounterStuck"

// AllQuirks lists every quirk in the order of the struct, but for CounterStuck=NAME,
// which is last.
func AllQuirks() []nic.QuirkInfo {
	stuck, _ := reflect.TypeFor[Quirks]().FieldByName(CounterStuck)
	return append(nic.AllQuirks(new(Quirks)), nic.QuirkInfo{
		Name: CounterStuck + "=NAME", Defect: stuck.Tag.Get("defect"), Does: stuck.Tag.Get("does"),
	})
}

// Set switches a quirk on or off by its name, CounterStuck with that of the counter:
// of those one stands still at a time.
func (q *Quirks) Set(spec string, on bool) error {
	name, counter, _ := strings.Cut(spec, "=")
	if name != CounterStuck || counter == "" {
		return nic.SetQuirk(q, spec, on)
	}
	if q.CounterStuck = ""; on {
		q.CounterStuck = counter
	}
	return nil
}

// Names lists the quirks that are switched on.
func (q *Quirks) Names() []string {
	names := nic.QuirksOn(q)
	if q.CounterStuck != "" {
		names = append(names, CounterStuck+"="+q.CounterStuck)
	}
	return names
}
