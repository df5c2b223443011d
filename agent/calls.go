package agent

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// verb is a call of the protocol: the client encodes it, and a session executes it.
type verb[In, Out any] struct {
	name   string
	number int // index in calls
	do     func(*session, *In) (Out, error)
}

func define[In, Out any](name string, do func(*session, *In) (Out, error)) *verb[In, Out] {
	return &verb[In, Out]{name: name, do: do}
}

// callHandler is a verb of any type.
type callHandler interface {
	// serve executes the call and returns the failure and the results.
	serve(s *session, args []byte) (reply []byte)
	describe(*strings.Builder)
	setNumber(int)
}

func (v *verb[In, Out]) setNumber(n int) { v.number = n }

func (v *verb[In, Out]) describe(w *strings.Builder) {
	w.WriteString(v.name)
	planOf(reflect.TypeFor[In]()).describe(w)
	planOf(reflect.TypeFor[Out]()).describe(w)
}

// serve implements callHandler.
func (v *verb[In, Out]) serve(s *session, args []byte) []byte {
	var (
		in  In
		out Out
	)
	err := decode(args, &in, s)
	if err == nil {
		err = hasReceiver(&in)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", v.name, verbs.ErrInvalid, err)
	} else {
		out, err = v.do(s, &in)
	}
	f := failureOf(err)
	return encode(encode(nil, &f, s), &out, s)
}

// hasReceiver returns an error for arguments without the object of the call.
func hasReceiver(in any) error {
	if f := reflect.ValueOf(in).Elem().FieldByName("On"); f.IsValid() && f.IsNil() {
		return fmt.Errorf("%w: missing object", errBadMessage)
	}
	return nil
}

// Calls to the host.
var (
	callIdentity = define("identity", func(s *session, _ *none) (Identity, error) { return s.host.Identity() })
	callOpen     = define("open_device", func(s *session, in *deviceNamed) (opened, error) { return s.open(in.Device) })
	callSetLink  = define("set_link", func(s *session, in *linkTo) (none, error) {
		return none{}, s.exclusively(in.Device, func() error { return s.host.SetLink(in.Device, in.Up) })
	})
	callSetAddress = define("set_address", func(s *session, in *addressTo) (none, error) {
		return none{}, s.exclusively(in.Device, func() error { return s.host.SetAddress(in.Device, in.Addr, in.Present) })
	})
	callRestart = define("restart", func(s *session, in *deviceNamed) (none, error) {
		return none{}, s.exclusively(in.Device, func() error {
			if err := s.closeDevice(in.Device); err != nil {
				return err
			}
			return s.host.Restart(in.Device)
		})
	})
)

// Calls to a device.
var (
	callQueryDevice = define("query_device", func(_ *session, in *on[verbs.Context]) (verbs.DeviceAttr, error) { return in.On.QueryDevice() })
	callQueryPort   = define("query_port", func(_ *session, in *onWith[verbs.Context, uint8]) (verbs.PortAttr, error) {
		return in.On.QueryPort(in.Arg)
	})
	callQueryGID  = define("query_gid", func(_ *session, in *onEntry) (verbs.GIDEntry, error) { return in.On.QueryGID(in.Port, in.Index) })
	callQueryPKey = define("query_pkey", func(_ *session, in *onEntry) (value[int], error) {
		k, err := in.On.QueryPKey(in.Port, in.Index)
		return value[int]{int(k)}, err
	})
	callAllocPD = define("alloc_pd", func(s *session, in *on[verbs.Context]) (made, error) {
		pd, err := in.On.AllocPD()
		return registerObject(s, in.On, pd, err, func(h handle) made { return made{h} })
	})
	callCreateChannel = define("create_comp_channel", func(s *session, in *on[verbs.Context]) (made, error) {
		ch, err := in.On.CreateCompChannel()
		return registerObject(s, in.On, ch, err, func(h handle) made { return made{h} })
	})
	callCreateCQ = define("create_cq", func(s *session, in *onWith[verbs.Context, verbs.CQInit]) (made, error) {
		cq, err := in.On.CreateCQ(in.Arg)
		return registerObject(s, in.On, cq, err, func(h handle) made { return made{h} })
	})
	callCreateSRQ = define("create_srq", func(s *session, in *onWith[verbs.Context, verbs.SRQInit]) (madeWith[uint32], error) {
		srq, err := in.On.CreateSRQ(in.Arg)
		return registerObject(s, in.On, srq, err, func(h handle) madeWith[uint32] { return madeWith[uint32]{h, srq.Number()} })
	})
	callCreateQP = define("create_qp", func(s *session, in *onWith[verbs.Context, verbs.QPInit]) (madeQP, error) {
		qp, err := in.On.CreateQP(in.Arg)
		return registerObject(s, in.On, qp, err, func(h handle) madeQP { return madeQP{h, qp.QPN(), qp.Type()} })
	})
	callOpenXRCD = define("open_xrcd", func(s *session, in *on[verbs.Context]) (made, error) {
		d, err := in.On.OpenXRCD()
		return registerObject(s, in.On, d, err, func(h handle) made { return made{h} })
	})
	callOpenQP = define("open_qp", func(s *session, in *secondQP) (madeQP, error) {
		qp, err := in.On.OpenQP(in.XRCD, in.QPN)
		return registerObject(s, in.On, qp, err, func(h handle) madeQP { return madeQP{h, qp.QPN(), qp.Type()} })
	})
	callWaitAsync = define("get_async_event", func(_ *session, in *onWith[verbs.Context, time.Duration]) (verbs.AsyncEvent, error) {
		return in.On.WaitAsync(in.Arg)
	})
	callCounters = define("counters", func(_ *session, in *on[verbs.Context]) (value[[]verbs.Counter], error) {
		return value[[]verbs.Counter]{in.On.Counters()}, nil
	})
	callCM = define("cm", func(s *session, in *on[verbs.Context]) (made, error) {
		cm, err := in.On.CM()
		return registerObject(s, in.On, cm, err, func(h handle) made { return made{h} })
	})
	callClose = define("close", func(s *session, in *on[closer]) (none, error) { return none{}, s.close(in.On) })
)

// Calls to memory and addresses.
var (
	callRegMR   = define("reg_mr", func(s *session, in *newMR) (madeMR, error) { return s.regMR(in) })
	callAllocMW = define("alloc_mw", func(s *session, in *onWith[verbs.PD, verbs.MWType]) (madeWith[verbs.MWType], error) {
		mw, err := in.On.AllocMW(in.Arg)
		return registerObject(s, in.On, mw, err, func(h handle) madeWith[verbs.MWType] { return madeWith[verbs.MWType]{h, mw.Type()} })
	})
	callCreateAH = define("create_ah", func(s *session, in *onWith[verbs.PD, verbs.AHAttr]) (madeWith[verbs.AHAttr], error) {
		ah, err := in.On.CreateAH(in.Arg)
		return registerObject(s, in.On, ah, err, func(h handle) madeWith[verbs.AHAttr] { return madeWith[verbs.AHAttr]{h, ah.Attr()} })
	})
	callMWKey = define("mw_rkey", func(_ *session, in *on[verbs.MW]) (value[verbs.RKey], error) {
		return value[verbs.RKey]{in.On.RKey()}, nil
	})
)

// Calls to queues.
var (
	callWaitChannel = define("get_cq_event", func(_ *session, in *onWith[verbs.CompChannel, time.Duration]) (value[verbs.CQ], error) {
		cq, err := in.On.Wait(in.Arg)
		return value[verbs.CQ]{cq}, err
	})
	callPoll = define("poll_cq", func(_ *session, in *onWith[verbs.CQ, int]) (value[[]verbs.WC], error) {
		wcs := make([]verbs.WC, min(max(in.Arg, 0), maxPoll))
		n, err := in.On.Poll(wcs)
		return value[[]verbs.WC]{wcs[:max(0, min(n, len(wcs)))]}, err
	})
	callArm      = define("req_notify_cq", func(_ *session, in *onWith[verbs.CQ, bool]) (none, error) { return none{}, in.On.ReqNotify(in.Arg) })
	callDepth    = define("cq_depth", func(_ *session, in *on[verbs.CQ]) (value[int], error) { return value[int]{in.On.Depth()}, nil })
	callResize   = define("resize_cq", func(_ *session, in *onWith[verbs.CQ, int]) (none, error) { return none{}, in.On.Resize(in.Arg) })
	callPostRecv = define("post_recv", func(_ *session, in *onWith[receiver, []verbs.RecvWR]) (value[int], error) {
		n, err := in.On.PostRecv(in.Arg)
		return value[int]{n}, err
	})
	callPostSend = define("post_send", func(_ *session, in *onWith[verbs.QP, []verbs.SendWR]) (value[int], error) {
		n, err := in.On.PostSend(in.Arg)
		return value[int]{n}, err
	})
	callModifySRQ = define("modify_srq", func(_ *session, in *changeSRQ) (none, error) { return none{}, in.On.Modify(in.Attr, in.Mask) })
	callQuerySRQ  = define("query_srq", func(_ *session, in *on[verbs.SRQ]) (verbs.SRQAttr, error) { return in.On.Query() })
	callModifyQP  = define("modify_qp", func(_ *session, in *changeQP) (none, error) { return none{}, in.On.Modify(in.Attr, in.Mask) })
	callQueryQP   = define("query_qp", func(_ *session, in *on[verbs.QP]) (verbs.QPAttr, error) { return in.On.Query() })
	callBindMW    = define("bind_mw", func(_ *session, in *bindMW) (value[verbs.RKey], error) {
		k, err := in.On.BindMW(in.MW, in.WRID, in.Flags, in.Info)
		return value[verbs.RKey]{k}, err
	})
	callAttach = define("attach_mcast", func(_ *session, in *onWith[verbs.QP, verbs.GID]) (none, error) {
		return none{}, in.On.AttachMulticast(in.Arg)
	})
	callDetach = define("detach_mcast", func(_ *session, in *onWith[verbs.QP, verbs.GID]) (none, error) {
		return none{}, in.On.DetachMulticast(in.Arg)
	})
)

// Calls to connection managers.
var (
	callListen = define("listen", func(s *session, in *newListener) (madeWith[netip.AddrPort], error) {
		l, err := in.On.Listen(in.Addr, in.Space, in.Backlog)
		return registerObject(s, in.On, l, err, func(h handle) madeWith[netip.AddrPort] { return madeWith[netip.AddrPort]{h, l.Addr()} })
	})
	callConnect = define("connect", func(s *session, in *connectTo) (peered, error) {
		c, err := in.On.Connect(in.QP, in.Addr, in.Param, in.Timeout)
		return registerObject(s, in.On, c, err, connOf(c))
	})
	callResolve = define("resolve", func(_ *session, in *resolveAt) (verbs.DatagramPeer, error) {
		return in.On.Resolve(in.Addr, in.Private, in.Timeout)
	})
	callNext = define("get_request", func(s *session, in *onWith[verbs.Listener, time.Duration]) (peered, error) {
		r, err := in.On.GetRequest(in.Arg)
		return registerObject(s, in.On, r, err, func(h handle) peered { return peered{h, r.Remote(), r.Param()} })
	})
	callAccept = define("accept", func(s *session, in *acceptWith) (peered, error) {
		c, err := in.On.Accept(in.QP, in.Param, in.Timeout)
		return registerObject(s, in.On, c, err, connOf(c))
	})
	callReject = define("reject", func(_ *session, in *onWith[verbs.ConnRequest, []byte]) (none, error) {
		return none{}, in.On.Reject(in.Arg)
	})
	callDisconnect     = define("disconnect", func(_ *session, in *on[verbs.Conn]) (none, error) { return none{}, in.On.Disconnect() })
	callWaitDisconnect = define("wait_disconnect", func(_ *session, in *onWith[verbs.Conn, time.Duration]) (none, error) {
		return none{}, in.On.WaitDisconnect(in.Arg)
	})
)

func connOf(c verbs.Conn) func(handle) peered {
	return func(h handle) peered { return peered{h, c.Remote(), c.Param()} }
}

// maxPoll limits the completions of one call.
const maxPoll = 4096

// calls lists all calls. The index is the number on the wire.
var calls = numbered(
	callIdentity, callOpen, callSetLink, callSetAddress, callRestart,
	callQueryDevice, callQueryPort, callQueryGID, callQueryPKey, callAllocPD, callCreateChannel, callCreateCQ, callCreateSRQ,
	callCreateQP, callOpenXRCD, callOpenQP, callWaitAsync, callCounters, callCM, callClose,
	callRegMR, callAllocMW, callCreateAH, callMWKey,
	callWaitChannel, callPoll, callArm, callDepth, callResize, callPostRecv, callPostSend, callModifySRQ, callQuerySRQ,
	callModifyQP, callQueryQP, callBindMW, callAttach, callDetach,
	callListen, callConnect, callResolve, callNext, callAccept, callReject, callDisconnect, callWaitDisconnect,
)

func numbered(all ...callHandler) []callHandler {
	for i, v := range all {
		v.setNumber(i)
	}
	return all
}

// protocolHash is a hash of the types of all messages. It detects builds with different messages.
var protocolHash = func() uint64 {
	var w strings.Builder
	planOf(reflect.TypeFor[failure]()).describe(&w)
	for _, v := range calls {
		v.describe(&w)
	}
	h := fnv.New64a()
	h.Write([]byte(w.String()))
	return h.Sum64()
}()
