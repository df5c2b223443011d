package engine

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// ud/3, ud/15, bth/ackreq/2: A datagram has the fields of its request and address
// handle, and completes when sent.
func TestUDPacketFieldsComeFromAddressHandle(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		ah := p.handle(func(a *verbs.AHAttr) { a.GRH.TrafficClass, a.GRH.HopLimit, a.GRH.FlowLabel = 0xfd, 7, 0x12345 })
		p.postTo(1, ah, 5)
		p.postTo(2, ah, p.mtu, func(wr *verbs.SendWR) {
			wr.Opcode, wr.Imm, wr.Flags = verbs.OpSendImm, 0x0a0b0c0d, verbs.SendSignaled|verbs.SendSolicited
		})
		p.postTo(3, ah, 0, func(wr *verbs.SendWR) { wr.Flags = 0 })
		p.postTo(4, ah, 0, func(wr *verbs.SendWR) { wr.UD.QKey = 0x8000_0005 })
		p.postTo(5, ah, 0, func(wr *verbs.SendWR) { wr.UD.QKey = 5; wr.Flags |= verbs.SendInline; wr.Inline = []byte("abc") })
		p.wcs()
		p.expect("UD SEND_ONLY 0 5B", fmt.Sprintf("UD SEND_ONLY_IMM 1 %dB imm 0a0b0c0d se", p.mtu), "UD SEND_ONLY 2", "UD SEND_ONLY 3", "UD SEND_ONLY 4 3B")
		p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND", "4 SUCCESS SEND", "5 SUCCESS SEND")
		if d := &p.ds[0]; d.TClass != 0xfc|link.ECT0 || d.HopLimit != 7 || d.FlowLabel != 0x12345 || d.Src.Port() != 0xe341 {
			p.Errorf("sent %+v", *d)
		}
		// If the posted Q_Key has the high bit set, the Q_Key of the QP is sent.
		for i, want := range []uint32{udQKey, udQKey, udQKey, udQKey, 5} {
			if got, deth := p.got[i], (wire.DETH{QKey: want, SrcQP: p.q.num}); got.DETH != deth || got.BTH.MigReq {
				p.Errorf("datagram %d: %+v", i, got)
			}
		}
		if !bytes.Equal(p.got[1].Payload, sourceData[:p.mtu]) || string(p.got[4].Payload) != "abc" {
			p.Error("other data than posted")
		}
		p.silence(time.Minute)
	})
}

// The source port is constant per flow and the same as on Linux. The connected ones
// are from captures.
func TestSourcePortsMatchLinux(t *testing.T) {
	for _, c := range []struct {
		label, local, remote uint32
		want                 uint16
	}{
		{0, 0x11, 0x11, 49441},
		{0x74922, 0x11, 0x11, 51519},
		{0x12345, 0x11, 0x12, 0xe341},
		{0xfffff, 1, 1, 0xffc0},
		{0, 0xffffff, 0xfffffe, 0xff12},
	} {
		if got := sourcePort(c.label, c.local, c.remote); got != c.want {
			t.Errorf("label %#x, QPs %#x and %#x: port %d, want %d", c.label, c.local, c.remote, got, c.want)
		}
	}
	if got := datagramPort(1); got != 55410 {
		t.Errorf("QP 1 sends from port %d", got)
	}
}

// QPs that share an address handle without flow label use their own source ports
// with correct ICRCs, unless the link has a fixed port.
func TestUDQPsSharingAddressHandleUseOwnPorts(t *testing.T) {
	for _, fixed := range []uint16{0, 0xd000} {
		eachUD(t, setup{nic: func(c *Config) { c.Link.SrcPort = fixed }}, func(p udPeer) {
			ah := p.handle(nil)
			first := p.q
			p.postTo(1, ah, 4)
			p.expect("UD SEND_ONLY 0 4B") // also checks the ICRC
			a := p.port
			p.replaceByUD(nil)
			p.postTo(2, ah, 4)
			p.expect("UD SEND_ONLY 0 4B")
			b := p.port
			p.q, p.port = first, 0
			p.postTo(3, ah, 4)
			p.expect("UD SEND_ONLY 1 4B")
			if p.port != a || (a == b) != (fixed != 0) || fixed != 0 && a != fixed {
				p.Errorf("ports %d, %d, %d", a, b, p.port)
			}
		})
	}
}

// ud/5: A datagram above the MTU of the port is dropped, and its request completes with success.
func TestUDOversizeDatagramIsDropped(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.LinkMTU = 1500 }}, func(p udPeer) {
		ah := p.handle(nil)
		p.postTo(1, ah, 1024)
		p.postTo(2, ah, 1025)
		p.postTo(3, ah, 1<<16)
		p.postTo(4, ah, 4)
		p.expect("UD SEND_ONLY 0 1024B", "UD SEND_ONLY 3 4B")
		p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND", "3 SUCCESS SEND", "4 SUCCESS SEND")
		p.state(verbs.QPStateRTS)
	})
}

func TestUDOversizeDatagramFailsByOption(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.UDOversizeError = true }}, func(p udPeer) {
		ah := p.handle(nil)
		p.postTo(1, ah, 4096)
		p.postTo(2, ah, 4097)
		p.postTo(3, ah, 4)
		p.expect("UD SEND_ONLY 0 4096B")
		p.wcs("1 SUCCESS SEND", "2 LOC_LEN_ERR", "3 WR_FLUSH_ERR")
		p.state(verbs.QPStateSQE)
	})
}

// err/2, err/3: A local error moves the QP to SQE. Receiving continues, and the
// application can move the QP back to RTS.
func TestUDLocalErrorLeadsToSQE(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		ah := p.handle(nil)
		p.recv(9, 50)
		p.postTo(1, ah, 4)
		p.postTo(2, ah, 4, func(wr *verbs.SendWR) { wr.Flags = 0; wr.SGL[0].LKey ^= 0x55 })
		p.postTo(3, ah, 4)
		p.expect("UD SEND_ONLY 0 4B")
		p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR", "3 WR_FLUSH_ERR")
		p.state(verbs.QPStateSQE)
		p.postTo(4, ah, 4)
		p.wcs("4 WR_FLUSH_ERR")
		p.send(wire.OpSendOnly, 0, data(4))
		p.wcs("9 SUCCESS RECV 44B")
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		p.postTo(5, ah, 4)
		p.expect("UD SEND_ONLY 1 4B")
		p.wcs("5 SUCCESS SEND")
		p.events()
	})
}

// ud/11, ud/12: PostSend rejects address handles of other protection domains and
// unsupported operations.
func TestUDRejectsForeignHandlesAndOperations(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		own := p.handle(nil)
		foreign := must.Get(p.h.nic.CreateAH(p.h.allocPD(), own.Attr))(p)
		destroyed := p.handle(nil)
		p.h.nic.DestroyAH(destroyed)
		try := func(what string, op verbs.WROpcode, ah *AH) {
			wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.h.sge(0, 8)}, UD: verbs.UD{QPN: peerQPN}}
			must.Fail(p, what, p.q.PostSend(p.now, &wr, Refs{AH: ah}), verbs.ErrInvalid)
		}
		try("no handle", verbs.OpSend, nil)
		try("a handle of another domain", verbs.OpSend, foreign)
		try("a destroyed handle", verbs.OpSend, destroyed)
		for _, op := range []verbs.WROpcode{
			verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd,
			verbs.OpSendInv, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpFlush, verbs.OpAtomicWrite,
		} {
			try(op.String(), op, own)
		}
		p.expect()
		p.wcs()
		p.state(verbs.QPStateRTS)
	})
}

// A posted datagram is sent although its address handle was destroyed.
func TestUDDatagramIsSentAfterDestroyAH(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		ah := p.handle(nil)
		p.postTo(1, ah, 4)
		p.h.nic.DestroyAH(ah)
		p.h.nic.DestroyAH(ah) // no effect
		p.expect("UD SEND_ONLY 0 4B")
		p.wcs("1 SUCCESS SEND")
	})
}

// CreateAH checks port, GID index, IP version, protection domain and limit. The
// handle keeps its domain in use.
func TestCreateAHChecksPathAndDomain(t *testing.T) {
	h := newHost(t, "10.0.0.1", func(c *Config) {
		c.GIDs = append(c.GIDs, verbs.GIDEntry{GID: verbs.GIDFrom(netip.MustParseAddr("fd00::1")), Index: 1, Type: verbs.GIDTypeRoCEv1})
		c.Limits.AHs = 2
	})
	good := verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(netip.MustParseAddr("10.0.0.2"))}}
	pd := h.allocPD()
	for name, edit := range map[string]func(*verbs.AHAttr){
		"port 2":                       func(a *verbs.AHAttr) { a.Port = 2 },
		"a GID index beyond the table": func(a *verbs.AHAttr) { a.GRH.SGIDIndex = 2 },
		"a GID that is not of RoCEv2":  func(a *verbs.AHAttr) { a.GRH.SGIDIndex = 1 },
		"a peer of another IP version": func(a *verbs.AHAttr) { a.GRH.DGID = verbs.GIDFrom(netip.MustParseAddr("fd00::2")) },
		"a GID that is not an address": func(a *verbs.AHAttr) { a.GRH.DGID = verbs.GID{} },
	} {
		a := good
		edit(&a)
		must.Fail(t, name, must.Err(h.nic.CreateAH(pd, a)), verbs.ErrInvalid)
	}
	must.Fail(t, "unknown domain", must.Err(h.nic.CreateAH(pd+1, good)), verbs.ErrInvalid)
	var ahs [2]*AH
	for i := range ahs {
		ah := must.Get(h.nic.CreateAH(pd, good))(t)
		ahs[i] = ah
	}
	must.Fail(t, "one beyond the limit", must.Err(h.nic.CreateAH(pd, good)), verbs.ErrNoMemory)
	h.nic.DestroyAH(ahs[0])
	must.Fail(t, "a domain with a handle", h.nic.DeallocPD(pd), verbs.ErrBusy)
	h.nic.DestroyAH(ahs[1])
	must.Do(t, h.nic.DeallocPD(pd))
}
