package interop

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// fabric connects fake devices: a work request is executed at both ends when the
// post returns. It implements the calls that the programs of this package use,
// without a protocol.
type fabric struct {
	mu      sync.Mutex
	devices map[verbs.GID]*fakeDevice
	lastKey uint32
	lastQPN verbs.QPN
	memory  map[uint32]*fakeMR
	// corrupt, if set, may change the payload of a message to the device at to.
	corrupt func(to netip.Addr, payload []byte)
	// noEvents is the address of a device whose events are lost.
	noEvents  netip.Addr
	listeners map[netip.AddrPort]*fakeListener
}

func newFabric() *fabric {
	return &fabric{devices: make(map[verbs.GID]*fakeDevice), memory: make(map[uint32]*fakeMR), listeners: make(map[netip.AddrPort]*fakeListener)}
}

// device returns the device at addr. Its GID has index 1; index 0 is another GID.
func (f *fabric) device(addr netip.Addr) *fakeDevice {
	d := &fakeDevice{f: f, addr: addr, qps: make(map[verbs.QPN]*fakeQP)}
	f.devices[verbs.GIDFrom(addr)] = d
	return d
}

type fakeDevice struct {
	verbs.Context // nil: other methods are not called
	f             *fabric
	addr          netip.Addr
	qps           map[verbs.QPN]*fakeQP
	open          int // objects not closed
}

func (d *fakeDevice) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Name: "fake"} }
func (d *fakeDevice) CM() (verbs.CM, error)  { return &fakeCM{dev: d}, nil }
func (d *fakeDevice) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{GIDs: 2}, nil
}

func (d *fakeDevice) QueryGID(_ uint8, i int) (verbs.GIDEntry, error) {
	e := verbs.GIDEntry{Index: i, Type: verbs.GIDTypeRoCEv2}
	if i == 1 {
		e.GID = verbs.GIDFrom(d.addr)
	}
	return e, nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// countOpen counts an object as open until it is closed.
func (d *fakeDevice) countOpen() closerFunc {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.open++
	return func() error {
		d.f.mu.Lock()
		defer d.f.mu.Unlock()
		d.open--
		return nil
	}
}

func (d *fakeDevice) AllocPD() (verbs.PD, error) { return &fakePD{d, d.countOpen()}, nil }

type fakePD struct {
	d *fakeDevice
	closerFunc
}

func (p *fakePD) AllocMW(verbs.MWType) (verbs.MW, error) { return nil, verbs.ErrNotSupported }
func (p *fakePD) CreateAH(a verbs.AHAttr) (verbs.AH, error) {
	return &fakeAH{a, p.d.countOpen()}, nil
}

func (p *fakePD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	mr := &fakeMR{init: init, closerFunc: p.d.countOpen()}
	p.d.f.mu.Lock()
	defer p.d.f.mu.Unlock()
	p.d.f.lastKey++
	mr.key = p.d.f.lastKey
	p.d.f.memory[mr.key] = mr
	return mr, nil
}

type fakeAH struct {
	attr verbs.AHAttr
	closerFunc
}

func (a *fakeAH) Attr() verbs.AHAttr { return a.attr }

type fakeMR struct {
	init verbs.MRInit
	key  uint32
	closerFunc
}

func (m *fakeMR) LKey() verbs.LKey { return verbs.LKey(m.key) }
func (m *fakeMR) RKey() verbs.RKey { return verbs.RKey(m.key) }
func (m *fakeMR) Addr() uint64     { return 0x1000 }
func (m *fakeMR) Len() int         { return len(m.init.Buf) }

// at returns the memory of a key and an address.
func (f *fabric) at(key uint32, addr uint64, n int) []byte {
	return f.memory[key].init.Buf[addr-0x1000:][:n]
}

func (d *fakeDevice) CreateCompChannel() (verbs.CompChannel, error) {
	return &fakeChannel{events: make(chan verbs.CQ, 64), closerFunc: d.countOpen()}, nil
}

type fakeChannel struct {
	events chan verbs.CQ
	closerFunc
}

func (c *fakeChannel) Wait(timeout time.Duration) (verbs.CQ, error) { return next(c.events, timeout) }

// next returns the next value of a channel, or ErrTimeout.
func next[T any](values <-chan T, timeout time.Duration) (value T, err error) {
	select {
	case value = <-values:
		return value, nil
	case <-time.After(timeout):
		return value, verbs.ErrTimeout
	}
}

func (d *fakeDevice) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	channel, _ := init.Channel.(*fakeChannel)
	return &fakeCQ{d: d, channel: channel, depth: init.Depth, closerFunc: d.countOpen()}, nil
}

type fakeCQ struct {
	d       *fakeDevice
	channel *fakeChannel
	depth   int
	armed   bool
	wcs     []verbs.WC
	closerFunc
}

func (c *fakeCQ) Depth() int       { return c.depth }
func (c *fakeCQ) Resize(int) error { return verbs.ErrNotSupported }

func (c *fakeCQ) ReqNotify(bool) error {
	c.d.f.mu.Lock()
	defer c.d.f.mu.Unlock()
	c.armed = true
	return nil
}

func (c *fakeCQ) Poll(into []verbs.WC) (int, error) {
	c.d.f.mu.Lock()
	defer c.d.f.mu.Unlock()
	n := copy(into, c.wcs)
	c.wcs = c.wcs[n:]
	return n, nil
}

// push adds a completion, with the fabric locked.
func (c *fakeCQ) push(wc verbs.WC) {
	if len(c.wcs) == c.depth {
		panic("completion queue overrun: the program made it too short")
	}
	c.wcs = append(c.wcs, wc)
	if c.armed && c.channel != nil && c.d.f.noEvents != c.d.addr {
		c.channel.events <- c
	}
	c.armed = false
}
