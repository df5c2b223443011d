package agent

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// verb is a call of the protocol. The client encodes the arguments of a function, and a
// session calls it and encodes the results.
type verb struct {
	name     string
	number   int // index in calls
	function reflect.Value
	in, out  []*codec // of the parameters but for the session, and of the results but for the error
	// attributesOf is the element of attributeFunctions for the object that the call creates.
	attributesOf reflect.Value
}

// define returns the remote call of a verb, which the agent executes by function. The first
// parameter of function is the session or the object of the call. If the first result is an
// interface, it is a new object, whose attributes are added to the reply.
func define(name string, function any) *verb {
	v := &verb{name: name, function: reflect.ValueOf(function)}
	t := v.function.Type()
	for i := range t.NumIn() {
		if t.In(i) != reflect.TypeFor[*session]() {
			v.in = append(v.in, codecOf(t.In(i)))
		}
	}
	for i := range t.NumOut() {
		if t.Out(i) != reflect.TypeFor[error]() {
			v.out = append(v.out, codecOf(t.Out(i)))
		}
	}
	if t.NumOut() > 0 {
		v.attributesOf = attributeFunctions[t.Out(0)]
	}
	return v
}

// describe writes the verb's name and the types in its messages, for client and agent to compare.
// These are the arguments, the results, and the attributes of an object that the verb creates.
func (v *verb) describe(w *strings.Builder) {
	w.WriteString(v.name)
	for _, p := range slices.Concat(v.in, v.out) {
		p.describe(w)
	}
	if v.attributesOf.IsValid() { // a function
		codecOf(v.attributesOf.Type().Out(0)).describe(w)
	}
}

// serve executes the call and returns the reply: the failure, which is empty after success, the
// results, and the attributes of a new object, if the call has made one. After an error the reply
// has no object and no attributes. in[0], the object or session of the call, is the new object's
// parent.
func (v *verb) serve(s *session, args []byte) (reply []byte) {
	in, err := v.decodeArguments(s, args)
	if err != nil {
		return failureReply(fmt.Errorf("%s: %w: %w", v.name, verbs.ErrInvalid, err))
	}
	out := v.function.Call(in)
	if last := out[len(out)-1]; last.Type() == reflect.TypeFor[error]() {
		err, _ = last.Interface().(error)
	}
	var attributes []reflect.Value
	if len(v.out) > 0 && v.out[0].kind == reflect.Interface && !out[0].IsNil() {
		if err == nil {
			err = s.addNew(in[0].Interface(), out[0].Interface())
		}
		switch {
		case err != nil:
			out[0] = reflect.Zero(out[0].Type())
		case v.attributesOf.IsValid():
			attributes = v.attributesOf.Call(out[:1])
		}
	}
	f := failureOf(err)
	reply = encode(nil, &f, s)
	for i, p := range v.out {
		reply = p.append(reply, out[i], s)
	}
	for _, a := range attributes {
		reply = codecOf(a.Type()).append(reply, a, s)
	}
	return reply
}

// decodeArguments decodes the function's arguments from b, with the session first if it takes one.
func (v *verb) decodeArguments(s *session, b []byte) (in []reflect.Value, err error) {
	if len(v.in) < v.function.Type().NumIn() {
		in = append(in, reflect.ValueOf(s))
	}
	for i, p := range v.in {
		arg := reflect.New(p.t).Elem()
		if b, err = p.parse(b, arg, s); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		if i == 0 && p.kind == reflect.Interface && arg.IsNil() {
			return nil, fmt.Errorf("%w: missing object", errBadMessage)
		}
		in = append(in, arg)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d trailing bytes", errBadMessage, len(b))
	}
	return in, nil
}

// attributeFunctions return, by the type of an object, its attributes that do not change. The
// client keeps these attributes and makes no call for them.
var attributeFunctions = func(functions ...any) map[reflect.Type]reflect.Value {
	all := map[reflect.Type]reflect.Value{}
	for _, f := range functions {
		all[reflect.TypeOf(f).In(0)] = reflect.ValueOf(f)
	}
	return all
}(
	verbs.SRQ.Number, verbs.MW.Type, verbs.AH.Attr, verbs.Listener.Addr,
	func(qp verbs.QP) qpAttributes { return qpAttributes{qp.QPN(), qp.Type()} },
	func(r verbs.ConnRequest) peerAttributes { return peerAttributes{r.Remote(), r.Param()} },
	func(c verbs.Conn) peerAttributes { return peerAttributes{c.Remote(), c.Param()} },
)

// Calls to the host.
var (
	callIdentity   = define("identity", func(s *session) (Identity, error) { return s.host.Identity() })
	callOpen       = define("open_device", (*session).open)
	callSetLink    = define("set_link", (*session).setLink)
	callSetAddress = define("set_address", (*session).setAddress)
	callRestart    = define("restart", (*session).restart)
)

// Calls to a device.
var (
	callQueryDevice   = define("query_device", verbs.Context.QueryDevice)
	callQueryPort     = define("query_port", verbs.Context.QueryPort)
	callQueryGID      = define("query_gid", verbs.Context.QueryGID)
	callQueryPKey     = define("query_pkey", verbs.Context.QueryPKey)
	callAllocPD       = define("alloc_pd", verbs.Context.AllocPD)
	callCreateChannel = define("create_comp_channel", verbs.Context.CreateCompChannel)
	callCreateCQ      = define("create_cq", verbs.Context.CreateCQ)
	callCreateSRQ     = define("create_srq", verbs.Context.CreateSRQ)
	callCreateQP      = define("create_qp", verbs.Context.CreateQP)
	callOpenXRCD      = define("open_xrcd", verbs.Context.OpenXRCD)
	callOpenQP        = define("open_qp", verbs.Context.OpenQP)
	callWaitAsync     = define("get_async_event", verbs.Context.WaitAsync)
	callCounters      = define("counters", verbs.Context.Counters)
	callCM            = define("cm", verbs.Context.CM)
	callClose         = define("close", (*session).close)
)

// Calls to memory and addresses.
var (
	callRegMR    = define("reg_mr", (*session).regMR)
	callAllocMW  = define("alloc_mw", verbs.PD.AllocMW)
	callCreateAH = define("create_ah", verbs.PD.CreateAH)
	callMWKey    = define("mw_rkey", verbs.MW.RKey)
)

// Calls to queues.
var (
	callWaitChannel = define("get_cq_event", func(ch verbs.CompChannel, timeout time.Duration) (cqEvent, error) {
		cq, err := ch.Wait(timeout)
		return cqEvent{cq}, err
	})
	callPoll = define("poll_cq", func(cq verbs.CQ, n int) ([]verbs.WC, error) {
		wcs := make([]verbs.WC, min(max(n, 0), maxPoll))
		n, err := cq.Poll(wcs)
		return wcs[:max(0, min(n, len(wcs)))], err
	})
	callReqNotify = define("req_notify_cq", verbs.CQ.ReqNotify)
	callDepth     = define("cq_depth", verbs.CQ.Depth)
	callResize    = define("resize_cq", verbs.CQ.Resize)
	callPostRecv  = define("post_recv", receiver.PostRecv)
	callPostSend  = define("post_send", verbs.QP.PostSend)
	callModifySRQ = define("modify_srq", verbs.SRQ.Modify)
	callQuerySRQ  = define("query_srq", verbs.SRQ.Query)
	callModifyQP  = define("modify_qp", verbs.QP.Modify)
	callQueryQP   = define("query_qp", verbs.QP.Query)
	callBindMW    = define("bind_mw", verbs.QP.BindMW)
	callAttach    = define("attach_mcast", verbs.QP.AttachMulticast)
	callDetach    = define("detach_mcast", verbs.QP.DetachMulticast)
)

// Calls to connection managers.
var (
	callListen         = define("listen", verbs.CM.Listen)
	callConnect        = define("connect", verbs.CM.Connect)
	callResolve        = define("resolve", verbs.CM.Resolve)
	callGetRequest     = define("get_request", verbs.Listener.GetRequest)
	callAccept         = define("accept", verbs.ConnRequest.Accept)
	callReject         = define("reject", verbs.ConnRequest.Reject)
	callDisconnect     = define("disconnect", verbs.Conn.Disconnect)
	callWaitDisconnect = define("wait_disconnect", verbs.Conn.WaitDisconnect)
)

// maxPoll limits the completions of one call.
const maxPoll = 4096

// calls lists all calls. The index is the number on the wire.
var calls = numbered(
	callIdentity, callOpen, callSetLink, callSetAddress, callRestart,
	callQueryDevice, callQueryPort, callQueryGID, callQueryPKey, callAllocPD, callCreateChannel, callCreateCQ, callCreateSRQ,
	callCreateQP, callOpenXRCD, callOpenQP, callWaitAsync, callCounters, callCM, callClose,
	callRegMR, callAllocMW, callCreateAH, callMWKey,
	callWaitChannel, callPoll, callReqNotify, callDepth, callResize, callPostRecv, callPostSend, callModifySRQ, callQuerySRQ,
	callModifyQP, callQueryQP, callBindMW, callAttach, callDetach,
	callListen, callConnect, callResolve, callGetRequest, callAccept, callReject, callDisconnect, callWaitDisconnect,
)

// numbered gives the verbs the numbers by which messages name them, and returns the verbs.
func numbered(all ...*verb) []*verb {
	for i, v := range all {
		v.number = i
	}
	return all
}

// protocolHash is a hash of the types of all messages. It detects builds with different messages.
var protocolHash = func() uint64 {
	var w strings.Builder
	codecOf(reflect.TypeFor[failure]()).describe(&w)
	for _, v := range calls {
		v.describe(&w)
	}
	h := fnv.New64a()
	h.Write([]byte(w.String()))
	return h.Sum64()
}()

// Arguments and results that are not those of a method of package verbs.
type (
	// none stands for the attributes of an object that has none.
	none struct{}

	openedDevice struct {
		Handle handle
		Info   verbs.DeviceInfo
	}

	qpAttributes struct {
		QPN  verbs.QPN
		Type verbs.QPType
	}

	// peerAttributes are those of a connection or a connection request.
	peerAttributes struct {
		Remote netip.AddrPort
		Param  verbs.ConnParam
	}

	// newMR describes a region in memory that the client has announced.
	newMR struct {
		Memory memoryID
		Offset int
		Length int
		Nil    bool
		Addr   uint64
		Access verbs.Access
	}

	registeredMR struct {
		Handle handle
		LKey   verbs.LKey
		RKey   verbs.RKey
		Addr   uint64
		Len    int
	}

	// cqEvent is a completion event of a CQ, which is not a new object.
	cqEvent struct{ CQ verbs.CQ }

	// receiver is a QP or an SRQ.
	receiver interface {
		PostRecv([]verbs.RecvWR) (int, error)
	}

	closer interface{ Close() error }
)
