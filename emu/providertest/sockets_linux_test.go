package providertest

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// onSockets opens a device on an address of this host.
func (p *provider) onSockets(addr netip.Addr) (device, error) {
	addrs := []netip.Addr{addr}
	switch p.name {
	case "softroce":
		return softroce.OnUDP(udplink.Config{}, softroce.Config{Name: addr.String(), Addrs: addrs})
	case "softiwarp":
		return softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Name: addr.String(), Addrs: addrs})
	}
	return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Name: addr.String(), Addrs: addrs})
}

// loopback opens two devices on the loopback network, which needs no privilege.
func (p *provider) loopback(t testing.TB) (a, b device) {
	t.Helper()
	open := func(addr string) device {
		d := must.Get(p.onSockets(netip.MustParseAddr(addr)))(t)
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	return open(loopbackA), open(loopbackB)
}

const loopbackA, loopbackB = "127.71.0.2", "127.71.0.3"

// connect makes two connected ends in real time.
func connect(t testing.TB, a, b verbs.Context) (x, y *End, c verbs.Conn) {
	t.Helper()
	y = NewEnd(t, b, verbs.QPTypeRC)
	gid := must.Get(b.QueryGID(1, 0))(t)
	l := Listen(t, b, netip.AddrPortFrom(gid.GID.Addr(), 0), 1)
	accepted := make(chan error, 1)
	go func() {
		req, err := l.GetRequest(30 * time.Second)
		if err == nil {
			_, err = req.Accept(y.QP, ConnParam, 30*time.Second)
		}
		accepted <- err
	}()
	x, c = Connect(t, a, l.Addr())
	must.Do(t, <-accepted)
	must.Do(t, l.Close())
	return x, y, c
}

// errorCounters stay zero on a network without errors.
var errorCounters = map[string][]string{
	"softroce":  {"drop_icrc", "drop_short", "retry_exceeded"},
	"softiwarp": {"mpa_bad_crcs", "conns_failed", "sent_terminates"},
}

func TestEchoOverSockets(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		a, b := p.loopback(t)
		before := a.Counters()
		must.Do(t, Echo{a, b, netip.MustParseAddr(loopbackB), 200, p.preposted, 0}.Run(t))
		for _, d := range []device{a, b} {
			for _, name := range errorCounters[p.name] {
				if n := Counter(d, name); n != 0 {
					t.Errorf("%s of %s is %d", name, d.Info().Name, n)
				}
			}
		}
		must.Do(t, a.Close())
		if after := a.Counters(); !slices.EqualFunc(before, after, func(x, y verbs.Counter) bool { return x.Name == y.Name }) {
			t.Errorf("counters were %v, are %v", before, after)
		}
	})
}

func TestEchoAcrossNamespaces(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		for _, v6 := range []bool{true, false} {
			x, y := testutil.HostPair(t, 9000)
			var devices [2]device
			for i, h := range []*testutil.Host{x, y} {
				must.Do(t, h.Do(func() (err error) {
					devices[i], err = p.onSockets(h.Addr(v6, 0).Addr())
					return err
				}))
				defer devices[i].Close()
			}
			must.Do(t, Echo{devices[0], devices[1], y.Addr(v6, 0).Addr(), 100, p.preposted, 0}.Run(t))
			if a := must.Get(devices[0].QueryPort(1))(t); a.ActiveMTU.Bytes() != 4096 {
				t.Errorf("port %+v", a)
			}
		}
	})
}

func TestCloseWakesBlockedCallsOnSockets(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		a, b := p.loopback(t)
		silent := must.Get(net.Listen("tcp", "127.71.0.77:0"))(t)
		defer silent.Close()
		var calls []blockedCall
		if p.connects() {
			x, _, c := connect(t, a, b)
			calls = blockedCalls(NewEnd(t, x.Dev, p.service), c, netip.MustParseAddr(loopbackA), netip.MustParseAddrPort(silent.Addr().String()))
		} else {
			calls = blockedCalls(NewEnd(t, a, p.service), nil, netip.Addr{}, netip.AddrPort{})
		}
		type outcome struct {
			name string
			err  error
		}
		ended := make(chan outcome, len(calls))
		for _, call := range calls {
			go func() { ended <- outcome{call.name, call.do()} }()
		}
		for blocked := 0; blocked < len(calls); time.Sleep(time.Millisecond) {
			a.Driver().Lock(drive.CallWait)
			blocked = a.BlockedCalls()
			a.Driver().Unlock()
		}
		must.Do(t, a.Close())
		for range calls {
			select {
			case o := <-ended:
				must.Fail(t, o.name, o.err, verbs.ErrClosed)
			case <-time.After(30 * time.Second):
				t.Fatal("a call did not return")
			}
		}
	})
}

// Goroutines may share devices and objects. The race detector checks it.
func TestObjectsAreSafeForConcurrentUse(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		da, db := p.loopback(t)
		a, b, _ := connect(t, da, db)
		mw := must.Get(a.PD.AllocMW(verbs.MWType1))(t)
		const users, binds = 4, 8
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			keys = map[verbs.RKey]bool{}
		)
		for i := range users {
			wg.Go(func() {
				for range binds {
					key, err := a.QP.BindMW(mw, 1, 0, verbs.BindInfo{MR: a.MR, Addr: a.MR.Addr(), Length: 8, Access: verbs.AccessRemoteRead})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					if keys[key] {
						t.Errorf("key %#x was returned twice", key)
					}
					keys[key] = true
					mu.Unlock()
					b.Recv(0, 10)
					if err := b.CQ.Resize(64 + i); err != nil {
						t.Error(err)
					}
					b.CQ.Depth()
					da.Counters()
					if _, err := b.QP.Query(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if len(keys) != users*binds {
			t.Errorf("%d keys", len(keys))
		}
	})
}

// The keys of a device in real time differ each time that it is opened.
func TestKeysDifferBetweenOpens(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		var all [2][]verbs.RKey
		for i := range all {
			d := must.Get(p.onSockets(netip.MustParseAddr(loopbackA)))(t)
			pd := must.Get(d.AllocPD())(t)
			for range 10 {
				mr := must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Access: verbs.AccessLocalWrite}))(t)
				all[i] = append(all[i], mr.RKey())
			}
			must.Do(t, d.Close())
		}
		if slices.Equal(all[0], all[1]) {
			t.Errorf("both opens gave keys %#x", all[0])
		}
	})
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		a, b := p.loopback(t)
		testAllocations(t, a, b)
	})
}

// On a cable in shared memory, where packets are built and received in place, nothing is allocated
// either, and data arrives unchanged.
func TestPostAndPollOnCableDoNotAllocate(t *testing.T) {
	addrs := [][]netip.Addr{{netip.MustParseAddr("fd00::1")}, {netip.MustParseAddr("fd00::2")}}
	cable := must.Get(shmlink.Create(shmlink.Config{Ports: addrs}))(t)
	defer cable.Close()
	var ds [2]device
	for i := range ds {
		d := must.Get(softroce.OnCable(cable, softroce.Config{Addrs: addrs[i]}))(t)
		defer d.Close()
		ds[i] = d
	}
	a, b := testAllocations(t, ds[0], ds[1])
	data := a.Fill(0, 20_000, 3)
	a.Do(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.SGL(0, len(data)), Remote: b.Remote(100)})
	if !bytes.Equal(b.Buf[100:][:len(data)], data) {
		t.Error("the data that was written differs")
	}
	for _, c := range slices.Concat(ds[0].Counters(), ds[1].Counters()) {
		if c.Value > 0 && slices.Contains([]string{"drop_icrc", "cable_garbage", "cable_lost"}, c.Name) {
			t.Errorf("%s is %d", c.Name, c.Value)
		}
	}
}

// testAllocations checks that SENDs, WRITEs and READs from one device to another do not allocate. It
// returns the ends that it has connected.
func testAllocations(t *testing.T, da, db device) (a, b *End) {
	a, b, _ = connect(t, da, db)
	recv := []verbs.RecvWR{{SGL: b.SGL(0, 64)}}
	send := []verbs.SendWR{
		{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.SGL(0, 64)},
		{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.SGL(0, 20_000), Remote: b.Remote(100)},
		{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.SGL(30_000, 5000), Remote: b.Remote(100)},
	}
	wc := make([]verbs.WC, 4)
	round := func() {
		must.Get(b.QP.PostRecv(recv))(t)
		for i := range send {
			must.Get(a.QP.PostSend(send[i : i+1]))(t)
			received := i > 0
			for sent := false; !sent || !received; {
				n, err := a.CQ.Poll(wc)
				if err != nil || n > 0 && wc[0].Status != verbs.WCSuccess {
					t.Fatal(wc[0].Status, err)
				}
				sent = sent || n > 0
				if n, err = b.CQ.Poll(wc); err != nil { // also to respond
					t.Fatal(err)
				}
				received = received || n > 0
			}
		}
	}
	for range 100 {
		round()
	}
	n := testing.AllocsPerRun(200, round)
	for i := 0; i < 10 && n >= 1; i++ { // slow rounds include timers of the background goroutines
		n = testing.AllocsPerRun(200, round)
	}
	if n >= 1 {
		t.Errorf("a send, a write, a read and their completions allocate %v times", n)
	}
	return a, b
}
