package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// fakeDevice is a device that records its open objects. Tests set how it fails.
type fakeDevice struct {
	fakeObject
	mu       sync.Mutex
	open     map[*fakeObject]string
	whole    map[*fakeObject]any // the object that embeds the key
	closed   []string            // names, in the order of closing
	isClosed bool
	events   chan verbs.AsyncEvent
	cqs      chan verbs.CQ
	last     lastCalls
	fail     error         // error of all calls that can fail
	panic    bool          // in QueryPort
	hang     chan struct{} // QueryDevice waits for it, if not nil
	hung     chan struct{} // and closes this before it waits
	wcs      []verbs.WC
	keys     atomic.Uint32
}

// lastCalls has the arguments of the last calls.
type lastCalls struct {
	buf   []byte
	send  []verbs.SendWR
	recv  []verbs.RecvWR
	qp    verbs.QPInit
	srq   verbs.SRQInit
	bind  verbs.BindInfo
	mw    verbs.MW
	attr  verbs.QPAttr
	mask  verbs.QPAttrMask
	param verbs.ConnParam
}

func (d *fakeDevice) recordCall(note func(*lastCalls)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	note(&d.last)
}

func newFakeDevice() *fakeDevice {
	d := &fakeDevice{open: make(map[*fakeObject]string), whole: make(map[*fakeObject]any), events: make(chan verbs.AsyncEvent, 8), cqs: make(chan verbs.CQ, 8)}
	d.add(&d.fakeObject, "device", d)
	return d
}

// fakeObject is the part of an object that can be closed.
type fakeObject struct {
	dev   *fakeDevice
	ended chan struct{}
}

// add records a new object. An object created while the device closes is closed at once.
func (d *fakeDevice) add(o *fakeObject, name string, whole any) {
	o.dev, o.ended = d, make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.whole[o] = whole
	if d.isClosed {
		close(o.ended)
		return
	}
	d.open[o] = name
}

func (o *fakeObject) self() *fakeObject { return o }

// newFake records a new object and returns it, with an error if the device fails.
func newFake[T interface{ self() *fakeObject }](d *fakeDevice, name string, o T) (T, error) {
	d.add(o.self(), name, o)
	return o, d.fail
}

func (d *fakeDevice) openObjects() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.open {
		names = append(names, n)
	}
	return names
}

func (o *fakeObject) Close() error {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	if _, ok := o.dev.open[o]; !ok {
		return &verbs.OpError{Op: "close", Obj: "it", Err: verbs.ErrClosed}
	}
	o.dev.closed = append(o.dev.closed, o.dev.open[o])
	delete(o.dev.open, o)
	close(o.ended)
	return nil
}

// Close closes all open objects.
func (d *fakeDevice) Close() error {
	err := d.fakeObject.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isClosed = true
	for o := range d.open {
		delete(d.open, o)
		close(o.ended)
	}
	return err
}

func (o *fakeObject) wait(timeout time.Duration) error {
	var out <-chan time.Time
	if timeout >= 0 {
		out = time.After(timeout)
	}
	select {
	case <-o.ended:
		return verbs.ErrClosed
	case <-out:
		return verbs.ErrTimeout
	}
}

type (
	fakePD      struct{ fakeObject }
	fakeXRCD    struct{ fakeObject }
	fakeChannel struct{ fakeObject }
	fakeCQ      struct {
		fakeObject
		depth atomic.Int64
	}
	fakeReceiver struct{ fakeObject }
	fakeSRQ      struct{ fakeReceiver }
	fakeQP       struct {
		fakeReceiver
		init verbs.QPInit
	}
	fakeMR struct {
		fakeObject
		init verbs.MRInit
		key  uint32
	}
	fakeMW struct {
		fakeObject
		kind verbs.MWType
		key  atomic.Uint32
	}
	fakeAH struct {
		fakeObject
		attr verbs.AHAttr
	}
	fakeCM       struct{ dev *fakeDevice }
	fakeListener struct {
		fakeObject
		addr netip.AddrPort
	}
	fakeConn struct {
		dev   *fakeDevice
		param verbs.ConnParam
	}
)

var fakeInfo = verbs.DeviceInfo{Name: "fake0", Provider: "fake", Transport: verbs.TransportIWARP, GUID: 1 << 63}

func (d *fakeDevice) Info() verbs.DeviceInfo { return fakeInfo }
func (d *fakeDevice) QueryDevice() (verbs.DeviceAttr, error) {
	if d.hang != nil {
		close(d.hung)
		<-d.hang
	}
	return verbs.DeviceAttr{FirmwareVersion: "1.2", Caps: verbs.CapRC | verbs.CapRD, MaxMRSize: 1 << 63, MaxQPRdAtomic: 255}, d.fail
}

func (d *fakeDevice) QueryPort(port uint8) (verbs.PortAttr, error) {
	if d.panic {
		panic("fake trouble")
	}
	return verbs.PortAttr{State: verbs.PortActive, GIDs: int(port), RateBps: 1 << 40}, d.fail
}

func (d *fakeDevice) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	return verbs.GIDEntry{GID: verbs.GID{0: port, 15: 9}, Index: index, Type: verbs.GIDTypeRoCEv2}, d.fail
}

func (d *fakeDevice) QueryPKey(_ uint8, index int) (uint16, error) {
	return 0xffff - uint16(index), d.fail
}

func (d *fakeDevice) Counters() []verbs.Counter {
	return []verbs.Counter{{Name: "a", Value: 1 << 60}, {Name: "b"}}
}

func (d *fakeDevice) AllocPD() (verbs.PD, error) { return newFake(d, "pd", new(fakePD)) }
func (d *fakeDevice) CreateCompChannel() (verbs.CompChannel, error) {
	return newFake(d, "channel", new(fakeChannel))
}

func (d *fakeDevice) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	if init.Channel != nil {
		if _, ok := init.Channel.(*fakeChannel); !ok {
			return nil, &verbs.OpError{Op: "create_cq", Err: verbs.ErrInvalid}
		}
	}
	cq := new(fakeCQ)
	cq.depth.Store(int64(init.Depth))
	return newFake(d, "cq", cq)
}

func (d *fakeDevice) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	d.recordCall(func(l *lastCalls) { l.srq = init })
	return newFake(d, "srq", new(fakeSRQ))
}

func (d *fakeDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	d.recordCall(func(l *lastCalls) { l.qp = init })
	return newFake(d, "qp", &fakeQP{init: init})
}

func (d *fakeDevice) OpenXRCD() (verbs.XRCD, error) { return newFake(d, "xrcd", new(fakeXRCD)) }

func (d *fakeDevice) OpenQP(verbs.XRCD, verbs.QPN) (verbs.QP, error) {
	return d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv})
}

func (d *fakeDevice) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	select {
	case e := <-d.events:
		return e, nil
	default:
		return verbs.AsyncEvent{}, d.wait(timeout)
	}
}
func (d *fakeDevice) CM() (verbs.CM, error) { return fakeCM{d}, d.fail }

func (p *fakePD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	d := p.dev
	d.recordCall(func(l *lastCalls) { l.buf = init.Buf })
	if d.fail != nil {
		return nil, d.fail
	}
	return newFake(d, "mr", &fakeMR{init: init, key: d.keys.Add(1)})
}

func (p *fakePD) AllocMW(kind verbs.MWType) (verbs.MW, error) {
	mw := &fakeMW{kind: kind}
	mw.key.Store(0x100)
	return newFake(p.dev, "mw", mw)
}

func (p *fakePD) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	return newFake(p.dev, "ah", &fakeAH{attr: attr})
}

func (m *fakeMR) LKey() verbs.LKey   { return verbs.LKey(m.key) }
func (m *fakeMR) RKey() verbs.RKey   { return verbs.RKey(m.key) << 8 }
func (m *fakeMR) Addr() uint64       { return m.init.Addr + 1<<50 }
func (m *fakeMR) Len() int           { return len(m.init.Buf) }
func (m *fakeMW) Type() verbs.MWType { return m.kind }
func (m *fakeMW) RKey() verbs.RKey   { return verbs.RKey(m.key.Load()) }
func (a *fakeAH) Attr() verbs.AHAttr { return a.attr }
func (q *fakeSRQ) Number() uint32    { return 77 }
func (q *fakeQP) QPN() verbs.QPN     { return 0xabcdef }
func (q *fakeQP) Type() verbs.QPType { return q.init.Type }
func (q *fakeCQ) Depth() int         { return int(q.depth.Load()) }
func (q *fakeCQ) ReqNotify(bool) error {
	select {
	case q.dev.cqs <- q:
	default:
	}
	return q.dev.fail
}
func (q *fakeCQ) Resize(depth int) error { q.depth.Store(int64(depth)); return q.dev.fail }

func (ch *fakeChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	select {
	case cq := <-ch.dev.cqs:
		return cq, nil
	default:
		return nil, ch.wait(timeout)
	}
}

func (q *fakeCQ) Poll(into []verbs.WC) (int, error) {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	n := copy(into, q.dev.wcs)
	q.dev.wcs = q.dev.wcs[n:]
	return n, q.dev.fail
}

func (q *fakeReceiver) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.dev.recordCall(func(l *lastCalls) { l.recv = wrs })
	return len(wrs), q.dev.fail
}
func (q *fakeSRQ) Modify(verbs.SRQAttr, verbs.SRQAttrMask) error { return q.dev.fail }
func (q *fakeSRQ) Query() (verbs.SRQAttr, error)                 { return verbs.SRQAttr{MaxWR: 7}, q.dev.fail }

func (q *fakeQP) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.dev.recordCall(func(l *lastCalls) { l.attr, l.mask = attr, mask })
	return q.dev.fail
}

func (q *fakeQP) Query() (attr verbs.QPAttr, err error) {
	q.dev.recordCall(func(l *lastCalls) { attr = l.attr })
	return attr, q.dev.fail
}

// PostSend accepts one request less if the device fails.
func (q *fakeQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.dev.recordCall(func(l *lastCalls) { l.send = wrs })
	if q.dev.fail != nil {
		return len(wrs) - 1, q.dev.fail
	}
	return len(wrs), nil
}

func (q *fakeQP) BindMW(mw verbs.MW, _ uint64, _ verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	q.dev.recordCall(func(l *lastCalls) { l.mw, l.bind = mw, info })
	if w, ok := mw.(*fakeMW); ok {
		return verbs.RKey(w.key.Add(1)), q.dev.fail
	}
	return 0, verbs.ErrInvalid
}
func (q *fakeQP) AttachMulticast(verbs.GID) error { return q.dev.fail }
func (q *fakeQP) DetachMulticast(verbs.GID) error { return q.dev.fail }

func (m fakeCM) Listen(addr netip.AddrPort, _ verbs.PortSpace, _ int) (verbs.Listener, error) {
	return newFake(m.dev, "listener", &fakeListener{addr: addr})
}

func (m fakeCM) Connect(_ verbs.QP, _ netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	if timeout == 0 {
		return nil, &verbs.OpError{Op: "connect", Err: &verbs.RejectError{Reason: 28, Text: "no", PrivateData: []byte("sorry")}}
	}
	return &fakeConn{m.dev, param}, m.dev.fail
}

func (m fakeCM) Resolve(_ netip.AddrPort, private []byte, _ time.Duration) (verbs.DatagramPeer, error) {
	return verbs.DatagramPeer{QPN: 5, QKey: 6, PrivateData: private}, m.dev.fail
}

func (l *fakeListener) Addr() netip.AddrPort { return l.addr }
func (l *fakeListener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	if timeout == time.Hour {
		return &fakeConn{l.dev, verbs.ConnParam{PrivateData: []byte("hello")}}, nil
	}
	return nil, l.wait(timeout)
}

func (c *fakeConn) Param() verbs.ConnParam { return c.param }
func (c *fakeConn) Remote() netip.AddrPort { return netip.MustParseAddrPort("[fd00::1%zone]:9") }

// Accept with a nil QP accepts for a datagram service, which has no connection.
func (c *fakeConn) Accept(qp verbs.QP, param verbs.ConnParam, _ time.Duration) (verbs.Conn, error) {
	c.dev.recordCall(func(l *lastCalls) { l.param = param })
	if qp == nil {
		return nil, c.dev.fail
	}
	return &fakeConn{c.dev, param}, c.dev.fail
}
func (c *fakeConn) Reject([]byte) error                        { return c.dev.fail }
func (c *fakeConn) Disconnect() error                          { return c.dev.fail }
func (c *fakeConn) WaitDisconnect(timeout time.Duration) error { return c.dev.wait(timeout) }

// fakeHost has fake devices.
type fakeHost struct {
	mu     sync.Mutex
	opened []*fakeDevice
	calls  []string
}

func (h *fakeHost) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *fakeHost) Identity() (Identity, error) {
	return Identity{Hostname: "here", Devices: []DeviceIdentity{{Info: fakeInfo, MTU: 1500, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}}, nil
}

func (h *fakeHost) Open(device string) (verbs.Context, error) {
	if device != fakeInfo.Name {
		return nil, fmt.Errorf("device %q: %w", device, verbs.ErrNotFound)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := newFakeDevice()
	h.opened = append(h.opened, d)
	return d, nil
}

func (h *fakeHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.opened)
}

func (h *fakeHost) device(i int) *fakeDevice {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened[i]
}

func (h *fakeHost) SetLink(device string, up bool) error {
	h.note("link %s %v", device, up)
	return nil
}

func (h *fakeHost) SetAddress(device string, addr netip.Prefix, present bool) error {
	h.note("address %s %v %v", device, addr, present)
	return nil
}

func (h *fakeHost) Restart(device string) error {
	h.note("restart %s", device)
	return fmt.Errorf("no switch: %w", ErrHostCannot)
}

// testAgent is an agent on loopback.
type testAgent struct {
	*Server
	*fakeHost
	addr string
	stop func()
}

// testTiming has timeouts that a test which passes does not reach.
var testTiming = Timing{HandshakeTimeout: 30 * time.Second, HeartbeatInterval: 50 * time.Millisecond, IdleTimeout: 30 * time.Second, CloseTimeout: 30 * time.Second}

func newTestAgent(tb testing.TB, change ...func(*Server)) *testAgent {
	tb.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(tb)
	h := new(fakeHost)
	s := &testAgent{Server: &Server{Key: NewKey(), Host: h, Timing: testTiming}, fakeHost: h, addr: ln.Addr().String()}
	for _, c := range change {
		c(s.Server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	tb.Cleanup(s.stop)
	return s
}

func (s *testAgent) client(tb testing.TB) *Client {
	tb.Helper()
	c := must.Get(Dial(tb.Context(), s.addr, s.Key))(tb)
	tb.Cleanup(func() { c.Close() })
	return c
}

// dev opens the fake device over a new connection.
func (s *testAgent) dev(tb testing.TB) (*Client, verbs.Context, *fakeDevice) {
	tb.Helper()
	c := s.client(tb)
	d := must.Get(c.Open(fakeInfo.Name))(tb)
	return c, d, s.device(0)
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not in 30 s: %s", what)
		}
	}
}
