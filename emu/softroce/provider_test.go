package softroce

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestDatagramServiceIsResolved(t *testing.T) {
	const qkey = 0x01234567
	readyUD := func(d *Device) *end {
		e := providertest.NewEnd(t, d, verbs.QPTypeUD)
		e.ReadyUD(qkey)
		return e
	}
	inWorld(t, func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		e := readyUD(d)
		must.Fail(t, "resolve of an unknown service", must.Err(d.cm.Resolve(netip.AddrPortFrom(addrB, 99), nil, verbs.Forever)), verbs.ErrRejected)
		peer := must.Get(d.cm.Resolve(netip.AddrPortFrom(addrB, 6), []byte("who"), verbs.Forever))(t)
		if peer.QKey != qkey || !bytes.HasPrefix(peer.PrivateData, []byte("me")) {
			t.Errorf("resolved %+v", peer)
		}
		ah := must.Get(e.PD.CreateAH(peer.AH))(t)
		copy(e.Buf, "datagram")
		e.Do(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, 8), UD: verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}})
	}, func(_ *sim.Proc, d *Device) {
		e := readyUD(d)
		e.Recv(0, 100)
		l := must.Get(d.cm.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 6), verbs.PortSpaceUDP, 0))(t)
		req := must.Get(l.GetRequest(verbs.Forever))(t)
		must.Get(req.Accept(e.QP, verbs.ConnParam{PrivateData: []byte("me")}, verbs.Forever))(t)
		wc := e.Complete()
		if wc.ByteLen != verbs.GRHLen+8 || string(e.Buf[verbs.GRHLen:verbs.GRHLen+8]) != "datagram" {
			t.Errorf("received %+v %q", wc, e.Buf[:48])
		}
		attr, err := verbs.InitAHFromWC(1, 0, &wc, e.Buf)
		if err != nil || attr.GRH.DGID.Addr() != addrA {
			t.Errorf("reply goes to %v, %v", attr.GRH.DGID, err)
		}
	})
}

func TestDisconnectFlushesPeerQP(t *testing.T) {
	at := netip.AddrPortFrom(addrB, 7)
	inWorld(t, func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		e, conn := providertest.Connect(t, d, at)
		p.Sleep(time.Millisecond)
		must.Do(t, conn.Disconnect())
		e.ExpectState(verbs.QPStateErr)
		must.Do(t, e.QP.Close())
		if len(d.cm.conns) != 0 {
			t.Errorf("%d connections left", len(d.cm.conns))
		}
	}, func(_ *sim.Proc, d *Device) {
		e, conn := acceptOne(t, d, at)
		must.Get(e.QP.PostRecv([]verbs.RecvWR{{WRID: 9, SGL: e.SGL(0, 8)}}))(t)
		if wc := e.ExpectWC(verbs.WCWRFlushErr); wc.WRID != 9 {
			t.Errorf("receive completed %+v", wc)
		}
		must.Do(t, conn.WaitDisconnect(verbs.Forever))
	})
}
