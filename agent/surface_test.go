package agent

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The device gets the arguments of every verb, and the client gets the results.
func TestEveryVerb(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, not %+v", what, got, want)
		}
	}
	same("info", dev.Info(), fakeInfo)
	for _, q := range []struct {
		name string
		ask  func(verbs.Context) (any, error)
	}{
		{"device", func(d verbs.Context) (any, error) { return d.QueryDevice() }},
		{"port", func(d verbs.Context) (any, error) { return d.QueryPort(3) }},
		{"gid", func(d verbs.Context) (any, error) { return d.QueryGID(1, -7) }},
		{"pkey", func(d verbs.Context) (any, error) { return d.QueryPKey(1, 4) }},
		{"counters", func(d verbs.Context) (any, error) { return d.Counters(), nil }},
	} {
		far := must.Get(q.ask(dev))(t)
		same(q.name, far, must.Get(q.ask(fake))(t))
	}

	pd := must.Get(dev.AllocPD())(t)
	ch := must.Get(dev.CreateCompChannel())(t)
	cq := must.Get(dev.CreateCQ(verbs.CQInit{Depth: 5, Channel: ch}))(t)
	same("depth", cq.Depth(), 5)
	if err := cq.Resize(9); err != nil || cq.Depth() != 9 {
		t.Errorf("resized to %d, %v", cq.Depth(), err)
	}
	x := must.Get(dev.OpenXRCD())(t)
	srq := must.Get(dev.CreateSRQ(verbs.SRQInit{PD: pd, Type: verbs.SRQXRC, MaxWR: 3, XRCD: x, CQ: cq}))(t)
	same("srq", srq.Number(), uint32(77))
	if l := fake.last.srq; l.MaxWR != 3 || l.PD == nil || l.XRCD == nil || l.CQ == nil {
		t.Errorf("%+v", l)
	}
	same("query srq", must.Get(srq.Query())(t), verbs.SRQAttr{MaxWR: 7})
	must.Do(t, srq.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit))
	qp := must.Get(dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeUD, PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq, Caps: verbs.QPCaps{MaxInline: 4}, SignalAll: true}))(t)
	same("qpn", qp.QPN(), verbs.QPN(0xabcdef))
	same("type", qp.Type(), verbs.QPTypeUD)
	if i := fake.last.qp; i.SendCQ == nil || i.SendCQ != i.RecvCQ || i.SRQ == nil || i.XRCD != nil || i.Caps.MaxInline != 4 || !i.SignalAll {
		t.Errorf("%+v", i)
	}
	same("opened type", must.Get(dev.OpenQP(x, 5))(t).Type(), verbs.QPTypeXRCRecv)
	attr := verbs.QPAttr{State: verbs.QPStateRTS, AH: verbs.AHAttr{GRH: verbs.GRH{DGID: verbs.GID{1, 2, 3}, FlowLabel: 99}}, SQDraining: true, AltTimeout: 255}
	if err := qp.Modify(attr, verbs.QPAttrDestQPN); err != nil || fake.last.mask != verbs.QPAttrDestQPN {
		t.Errorf("%v, %v", err, fake.last.mask)
	}
	same("attributes", must.Get(qp.Query())(t), attr)

	mr := must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 100), Addr: 7}))(t)
	same("mr", []any{mr.LKey(), mr.RKey(), mr.Addr(), mr.Len()}, []any{verbs.LKey(1), verbs.RKey(0x100), uint64(7 + 1<<50), 100})
	mw := must.Get(pd.AllocMW(verbs.MWType1))(t)
	same("mw", []any{mw.Type(), mw.RKey()}, []any{verbs.MWType1, verbs.RKey(0x100)})
	info := verbs.BindInfo{MR: mr, Addr: 1, Length: 2, Access: verbs.AccessRemoteRead}
	if k := must.Get(qp.BindMW(mw, 1, 0, info))(t); k != 0x101 || mw.RKey() != k {
		t.Errorf("key %#x, then %#x", k, mw.RKey())
	}
	if l := fake.last; l.bind.MR.Len() != 100 || l.bind.Length != 2 {
		t.Errorf("%+v", l.bind)
	}
	ah := must.Get(pd.CreateAH(attr.AH))(t)
	same("ah", ah.Attr(), attr.AH)
	sends := []verbs.SendWR{
		{WRID: 1 << 63, Opcode: verbs.OpAtomicWrite, Flags: verbs.SendInline, Inline: []byte{}, SGL: []verbs.SGE{{Addr: 1, Length: 2, LKey: 3}}, Imm: 4},
		{Remote: verbs.Remote{Addr: 1, RKey: 2}, Atomic: verbs.Atomic{CompareAdd: 3, Swap: 4}, XRC: verbs.XRC{SRQN: 5}, Flush: verbs.Flush{Length: 6, Type: 7, Level: 8}},
	}
	same("posted", must.Get(qp.PostSend(sends))(t), 2)
	same("sends", fake.last.send, sends)
	same("posted", must.Get(qp.PostSend([]verbs.SendWR{{UD: verbs.UD{AH: ah, QPN: 1, QKey: 2}, Bind: verbs.Bind{MW: mw, RKey: 3, Info: info}}}))(t), 1)
	if wr := fake.last.send[0]; wr.UD.AH.Attr() != attr.AH || wr.Bind.MW.Type() != verbs.MWType1 || wr.Bind.Info.MR.Len() != 100 {
		t.Errorf("%+v", wr)
	}
	recvs := []verbs.RecvWR{{WRID: 1}, {SGL: []verbs.SGE{}}}
	same("receives", must.Get(qp.PostRecv(recvs))(t), 2)
	same("receives", fake.last.recv, recvs)
	fake.last.recv = nil
	same("receives", must.Get(srq.PostRecv(recvs))(t), 2)
	same("receives", fake.last.recv, recvs)
	must.Do(t, errors.Join(qp.AttachMulticast(verbs.GID{1}), qp.DetachMulticast(verbs.GID{2})))
	testConnections(t, dev, qp, fake)
}

func testConnections(t *testing.T, dev verbs.Context, qp verbs.QP, fake *fakeDevice) {
	t.Helper()
	cm := must.Get(dev.CM())(t)
	if again := must.Get(dev.CM())(t); again != cm {
		t.Error("the connection manager is another the second time")
	}
	at := netip.MustParseAddrPort("[fd00::2%eth0]:99")
	l := must.Get(cm.Listen(at, verbs.PortSpaceTCP, 3))(t)
	if l.Addr() != at {
		t.Errorf("listens at %v", l.Addr())
	}
	req := must.Get(l.GetRequest(time.Hour))(t)
	param := verbs.ConnParam{PrivateData: []byte{1}, ResponderResources: 2, FlowControl: true}
	if string(req.Param().PrivateData) != "hello" || req.Remote().Port() != 9 {
		t.Errorf("%+v from %v", req.Param(), req.Remote())
	}
	conn := must.Get(req.Accept(qp, param, 30*time.Second))(t)
	if !reflect.DeepEqual(conn.Param(), param) || !reflect.DeepEqual(fake.last.param, param) || conn.Remote().Addr().Zone() != "zone" {
		t.Errorf("%+v with %v", conn.Param(), conn.Remote())
	}
	if c, err := req.Accept(nil, param, 0); c != nil || err != nil {
		t.Errorf("a datagram service has the connection %v, %v", c, err)
	}
	must.Do(t, errors.Join(req.Reject(nil), conn.Disconnect()))
	if err := conn.WaitDisconnect(time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Error(err)
	}
	_, err := cm.Connect(qp, at, param, 0)
	var r *verbs.RejectError
	if !errors.As(err, &r) || !errors.Is(err, verbs.ErrRejected) || r.Reason != 28 || string(r.PrivateData) != "sorry" {
		t.Errorf("rejected with %v", err)
	}
	if c := must.Get(cm.Connect(qp, at, param, 30*time.Second))(t); !reflect.DeepEqual(c.Param(), param) {
		t.Errorf("%+v", c.Param())
	}
	if p := must.Get(cm.Resolve(at, []byte("x"), 0))(t); p.QKey != 6 || string(p.PrivateData) != "x" {
		t.Errorf("%+v", p)
	}
}

// A failed call returns its results with the error.
func TestFailedCallsReturnResults(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	qp := must.Get(dev.CreateQP(verbs.QPInit{}))(t)
	cq := must.Get(dev.CreateCQ(verbs.CQInit{}))(t)
	fake.fail = &verbs.OpError{Op: "fake", Obj: "it", Err: verbs.ErrOverrun}
	n, err := qp.PostSend(make([]verbs.SendWR, 5))
	var op *verbs.OpError
	if n != 4 || !errors.Is(err, verbs.ErrOverrun) || !errors.As(err, &op) || op.Op != "fake" || op.Obj != "it" || err.Error() != fake.fail.Error() {
		t.Errorf("%d posted, %v", n, err)
	}
	fake.wcs = make([]verbs.WC, 2)
	if n, err := cq.Poll(make([]verbs.WC, 3)); n != 2 || !errors.Is(err, verbs.ErrOverrun) {
		t.Errorf("%d polled, %v", n, err)
	}
}

func TestPollOfManyCompletions(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	cq := must.Get(dev.CreateCQ(verbs.CQInit{}))(t)
	fake.wcs = make([]verbs.WC, 3*maxPoll)
	for i := range fake.wcs {
		fake.wcs[i] = verbs.WC{WRID: uint64(i), Status: verbs.WCGeneralErr, Flags: verbs.WCWithInv, QPN: 1 << 23}
	}
	want := slices.Clone(fake.wcs)
	got := make([]verbs.WC, 2*maxPoll+5)
	if n, err := cq.Poll(got); err != nil || n != len(got) || !slices.Equal(got, want[:n]) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := cq.Poll(nil); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := cq.Poll(make([]verbs.WC, 2*maxPoll)); err != nil || n != maxPoll-5 {
		t.Errorf("%d, %v", n, err)
	}
}

// Events refer to the program's own objects.
func TestEventsReferToClientObjects(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	ch := must.Get(dev.CreateCompChannel())(t)
	one, two := must.Get(dev.CreateCQ(verbs.CQInit{Channel: ch}))(t), must.Get(dev.CreateCQ(verbs.CQInit{Channel: ch}))(t)
	for _, want := range []verbs.CQ{two, one} {
		must.Do(t, want.ReqNotify(false))
		if got := must.Get(ch.Wait(30 * time.Second))(t); got != want {
			t.Errorf("an event of %p, not %p", got, want)
		}
	}
	qp, srq := must.Get(dev.CreateQP(verbs.QPInit{}))(t), must.Get(dev.CreateSRQ(verbs.SRQInit{}))(t)
	here := fake.find(t, "qp", "srq", "cq")
	fake.events <- verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: here[0].(verbs.QP)}
	fake.events <- verbs.AsyncEvent{Type: verbs.EventSRQErr, SRQ: here[1].(verbs.SRQ), Port: 3}
	fake.events <- verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: &fakeQP{}} // unknown
	for _, want := range []verbs.AsyncEvent{{Type: verbs.EventQPFatal, QP: qp}, {Type: verbs.EventSRQErr, SRQ: srq, Port: 3}, {Type: verbs.EventQPFatal}} {
		if got := must.Get(dev.WaitAsync(30 * time.Second))(t); got != want {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	if _, err := dev.WaitAsync(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Error(err)
	}
}

// find returns objects of the device by their names.
func (d *fakeDevice) find(tb testing.TB, names ...string) (all []any) {
	tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		for o, name := range d.open {
			if name == n {
				all = append(all, d.whole[o])
				break
			}
		}
	}
	return all
}

// Objects of another provider are passed on as foreign objects, which the device rejects.
func TestForeignObjectsReachDevice(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	if _, err := dev.CreateCQ(verbs.CQInit{Channel: &fakeChannel{}}); !errors.Is(err, verbs.ErrInvalid) {
		t.Error(err)
	}
	other := newTestAgent(t)
	_, elsewhere, _ := other.dev(t)
	pd := must.Get(elsewhere.AllocPD())(t)
	must.Get(dev.CreateQP(verbs.QPInit{PD: pd}))(t)
	if _, ok := fake.last.qp.PD.(*fakePD); ok || fake.last.qp.PD == nil {
		t.Errorf("the device got %T", fake.last.qp.PD)
	}
}

// The device answers calls on closed objects.
func TestCallsOnClosedObjects(t *testing.T) {
	s := newTestAgent(t)
	c, dev, fake := s.dev(t)
	pd := must.Get(dev.AllocPD())(t)
	mr := must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 10)}))(t)
	must.Do(t, errors.Join(mr.Close(), pd.Close()))
	if err := pd.Close(); !errors.Is(err, verbs.ErrClosed) || err.Error() != "close it: closed" {
		t.Error(err)
	}
	// The agent keeps only the last closed objects.
	for range keptObjects + 1 {
		must.Do(t, must.Get(dev.AllocPD())(t).Close())
	}
	if err := pd.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	if n := len(c.objects); n > keptObjects+1 {
		t.Errorf("the client keeps %d objects", n)
	}
	if err := dev.Close(); err != nil || len(fake.openObjects()) != 0 {
		t.Errorf("%v, %v", err, fake.openObjects())
	}
}
