//go:build ibverbs && linux && cgo

package ibv

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var testDepths = verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 2, RetryCount: 7, RNRRetryCount: 7}

// connected makes a connection of the device with itself.
func (b *bench) connected(cm verbs.CM, at netip.Addr, one, other verbs.QP) (asks, answers verbs.Conn) {
	b.Helper()
	l := must.Get(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4))(b.T)
	defer l.Close()
	if l.Addr().Port() == 0 || l.Addr().Addr() != at {
		b.Errorf("it listens at %v", l.Addr())
	}
	ask := testDepths
	ask.PrivateData = []byte("may I")
	end := make(chan error, 1)
	go func() {
		var err error
		asks, err = cm.Connect(one, l.Addr(), ask, patience)
		end <- err
	}()
	req := must.Get(l.GetRequest(patience))(b.T)
	if p := req.Param(); p.ResponderResources != 3 || p.InitiatorDepth != 2 || !bytes.HasPrefix(p.PrivateData, ask.PrivateData) {
		b.Errorf("request %+v", p)
	}
	if req.Remote().Addr() != at {
		b.Errorf("a request of %v", req.Remote())
	}
	reply := verbs.ConnParam{ResponderResources: 2, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 7, PrivateData: []byte("you may")}
	answers = must.Get(req.Accept(other, reply, patience))(b.T)
	b.ok("connect", <-end)
	b.refused("answering twice", req.Reject(nil), verbs.ErrInvalid)
	if p := asks.Param(); !bytes.HasPrefix(p.PrivateData, reply.PrivateData) {
		b.Errorf("answer %+v", p)
	}
	if asks.Remote() != l.Addr() {
		b.Errorf("connected to %v", asks.Remote())
	}
	return asks, answers
}

// state fails the test unless the queue pair gets into a state. siw of Linux 6.1 and 6.12
// fills in none, and what is told is what was in that memory before: there is nothing to
// see then.
func (b *bench) state(qp verbs.QP, want verbs.QPState) {
	b.Helper()
	if b.mute() {
		b.Logf("%s does not tell the state of its queue pairs", b.info.Name)
		return
	}
	var a verbs.QPAttr
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		a = must.Get(qp.Query())(b.T)
		if a.State == want {
			return
		}
	}
	b.Errorf("%v, want %v", a.State, want)
}

// mute reports whether the device tells other states than those that its queue pairs are in.
func (b *bench) mute() bool {
	b.Helper()
	fresh, begun := b.newQP(verbs.QPTypeRC, nil), b.newQP(verbs.QPTypeRC, nil)
	defer fresh.Close()
	defer begun.Close()
	for range 4 {
		b.ok("to INIT", begun.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
		one, err1 := fresh.Query()
		two, err2 := begun.Query()
		b.ok("query_qp", errors.Join(err1, err2))
		if one.State != verbs.QPStateReset || two.State != verbs.QPStateInit {
			return true
		}
		b.ok("to RESET", begun.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		if one, err1 = begun.Query(); err1 != nil || one.State != verbs.QPStateReset {
			return true
		}
	}
	return false
}

func TestConnections(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		cm, at := b.manager()
		for round := range 3 {
			one, other := b.newQP(verbs.QPTypeRC, nil), b.newQP(verbs.QPTypeRC, nil)
			asks, answers := b.connected(cm, at, one, other)
			b.state(one, verbs.QPStateRTS)
			b.state(other, verbs.QPStateRTS)
			b.recv(other, 1, 4096, 64)
			b.recv(one, 2, 8192, 64)
			b.post(one, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 40)})
			b.succeeds(1, 3)
			b.post(other, verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(100, 40)},
				verbs.SendWR{WRID: 5, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: b.sge(100, 4000), Remote: b.remote(16384)},
				verbs.SendWR{WRID: 6, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(32768, 4000), Remote: b.remote(100)})
			b.succeeds(2, 4, 5, 6)
			if !bytes.Equal(b.buf[:40], b.buf[4096:4136]) || !bytes.Equal(b.buf[100:4100], b.buf[32768:36768]) {
				t.Error("other bytes than were sent or read")
			}
			_, err := cm.Connect(one, netip.AddrPortFrom(at, 1), testDepths, time.Second)
			b.refused("connecting what is connected", err, verbs.ErrInvalid)
			b.refused("waiting for the end", asks.WaitDisconnect(20*time.Millisecond), verbs.ErrTimeout)
			ends, sees := asks, answers
			if round == 1 {
				ends, sees = answers, asks
			}
			b.ok("disconnect", ends.Disconnect())
			b.ok("the end", sees.WaitDisconnect(patience))
			b.ok("the own end", ends.WaitDisconnect(patience))
			b.state(one, verbs.QPStateErr)
			b.state(other, verbs.QPStateErr)
			b.ok("disconnect again", ends.Disconnect())
			b.ok("close", errors.Join(one.Close(), other.Close()))
		}
	})
}

func TestClosingAQueuePairEndsItsConnection(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		cm, at := b.manager()
		one, other := b.newQP(verbs.QPTypeRC, nil), b.newQP(verbs.QPTypeRC, nil)
		asks, answers := b.connected(cm, at, one, other)
		b.ok("close", one.Close())
		b.ok("its own end", asks.WaitDisconnect(patience))
		b.ok("the peer's end", answers.WaitDisconnect(patience))
		b.state(other, verbs.QPStateErr)
	})
}

func TestRefusals(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		cm, at := b.manager()
		qp := b.newQP(verbs.QPTypeRC, nil)
		l := must.Get(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4))(b.T)
		_, err := cm.Listen(l.Addr(), verbs.PortSpaceTCP, 4)
		b.refused("a port in use", err, verbs.ErrBusy)
		_, err = l.GetRequest(20 * time.Millisecond)
		b.refused("waiting for nobody", err, verbs.ErrTimeout)
		go func() {
			if req, err := l.GetRequest(patience); err == nil {
				_ = req.Reject([]byte("no"))
			}
		}()
		_, err = cm.Connect(qp, l.Addr(), testDepths, patience)
		var rejected *verbs.RejectError
		if !errors.As(err, &rejected) || !bytes.HasPrefix(rejected.PrivateData, []byte("no")) {
			t.Errorf("a request that is refused: %v (%+v)", err, rejected)
		}
		b.Logf("refused: %v", err)
		began := time.Now()
		_, err = cm.Connect(b.newQP(verbs.QPTypeRC, nil), l.Addr(), testDepths, 200*time.Millisecond)
		b.refused("a request that nobody answers", err, verbs.ErrTimeout)
		if took := time.Since(began); took < 200*time.Millisecond || took > 3*time.Second {
			t.Errorf("a timeout of 200 ms after %v", took)
		}
		waits := make(chan error, 1)
		quiet := must.Get(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4))(b.T)
		go func() { waits <- second(quiet.GetRequest(verbs.Forever)) }()
		time.Sleep(20 * time.Millisecond)
		b.ok("close the listener", quiet.Close())
		b.refused("a wait on it", <-waits, verbs.ErrClosed)
		b.refused("closing twice", quiet.Close(), verbs.ErrClosed)
		b.ok("close the listener", l.Close())
		_, err = cm.Connect(b.newQP(verbs.QPTypeRC, nil), l.Addr(), testDepths, patience)
		b.refused("nobody listens", err, verbs.ErrRejected)
		b.Logf("nobody listens: %v", err)
		long := testDepths
		long.PrivateData = make([]byte, 256)
		_, err = cm.Connect(b.newQP(verbs.QPTypeRC, nil), l.Addr(), long, patience)
		b.refused("too much private data", err, verbs.ErrInvalid)
		_, err = cm.Listen(netip.MustParseAddrPort("192.0.2.77:0"), verbs.PortSpaceTCP, 1)
		b.refused("an address that nobody has", err, nil)
		b.Logf("an address that nobody has: %v", err)
		_, err = cm.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.PortSpaceTCP, 1)
		if err != nil && !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%v does not name the address", err)
		}
	})
}

func TestDatagramService(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		b.needs(verbs.CapUD, "UD")
		cm, at := b.manager()
		one, other := b.newQP(verbs.QPTypeUD, nil), b.newQP(verbs.QPTypeUD, nil)
		b.up(one, 0)
		b.up(other, 0)
		l := must.Get(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceUDP, 4))(b.T)
		served := make(chan error, 1)
		go func() {
			req, err := l.GetRequest(patience)
			if err == nil && !bytes.HasPrefix(req.Param().PrivateData, []byte("where")) {
				err = errors.New("the question came without its private data")
			}
			if err == nil {
				_, err = req.Accept(other, verbs.ConnParam{PrivateData: []byte("here")}, patience)
			}
			served <- err
		}()
		peer := must.Get(cm.Resolve(l.Addr(), []byte("where"), patience))(b.T)
		b.ok("serve", <-served)
		if peer.QPN != other.QPN() || !bytes.HasPrefix(peer.PrivateData, []byte("here")) {
			t.Errorf("%+v", peer)
		}
		ah := must.Get(b.pd.CreateAH(peer.AH))(b.T)
		b.recv(other, 1, 4096, verbs.GRHLen+64)
		b.post(one, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 32), UD: verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}})
		b.succeeds(1, 2)
	})
}

// A device that is closed in the middle of everything leaves nobody waiting.
func TestClosingTheDeviceEndsConnections(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		cm, at := b.manager()
		one, other := b.newQP(verbs.QPTypeRC, nil), b.newQP(verbs.QPTypeRC, nil)
		asks, _ := b.connected(cm, at, one, other)
		l := must.Get(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4))(b.T)
		waits, dials, ends := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		third := b.newQP(verbs.QPTypeRC, nil)
		peer := must.Get(Provider{}.Open(b.info.Name))(b.T)
		defer peer.Close()
		silent := must.Get(peer.CM())(b.T)
		quiet := must.Get(silent.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4))(b.T)
		go func() { waits <- second(l.GetRequest(verbs.Forever)) }()
		go func() { dials <- second(cm.Connect(third, quiet.Addr(), testDepths, verbs.Forever)) }()
		go func() { ends <- asks.WaitDisconnect(verbs.Forever) }()
		time.Sleep(100 * time.Millisecond)
		b.ok("close", b.Context.Close())
		b.refused("a listener", <-waits, verbs.ErrClosed)
		b.refused("a connect", <-dials, verbs.ErrClosed)
		<-ends
		b.refused("listen", second(cm.Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 1)), verbs.ErrClosed)
	})
}
