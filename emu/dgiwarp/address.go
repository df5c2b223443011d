package dgiwarp

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/verbs"
)

// The flow label of an address handle is the peer's UDP port, which verbs have no field
// for; 0 means the port of the device itself. The GRH of an IPv6 receive has the source
// port there, so that verbs.InitAHFromWC works. The protocol does not use flow labels.

// AddressOf returns the attributes of an address handle for a peer at an IP address and UDP port.
// Port 0 stands for the port of the device that sends.
func AddressOf(to netip.AddrPort) verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to.Addr()), FlowLabel: uint32(to.Port())}}
}

// InitAHFromWC returns the attributes of an address handle for the sender of a received message.
// grh is the GRH, the first verbs.GRHLen bytes of the receive buffer. Unlike verbs.InitAHFromWC, it
// sets the flow label to the UDP port of the peer, as address handles of this provider need.
func InitAHFromWC(port, sgidIndex uint8, wc *verbs.WC, grh []byte) (verbs.AHAttr, error) {
	a, err := verbs.InitAHFromWC(port, sgidIndex, wc, grh)
	if err == nil {
		a.GRH.FlowLabel = uint32(engine.SourcePort(grh))
	}
	return a, err
}

// Source is the sender of a received message.
type Source struct {
	Addr netip.AddrPort
	QPN  verbs.QPN
}

// SourceOf returns the sender of a received message. grh is the GRH, the first verbs.GRHLen bytes
// of the receive buffer. The flow label that InitAHFromWC returns is the peer's UDP port.
func SourceOf(wc *verbs.WC, grh []byte) (Source, error) {
	const port, sgidIndex = 1, 0 // the local ones; the result does not depend on them
	a, err := InitAHFromWC(port, sgidIndex, wc, grh)
	udpPort := uint16(a.GRH.FlowLabel)
	return Source{netip.AddrPortFrom(a.GRH.DGID.Addr(), udpPort), wc.SrcQP}, err
}

// addressHandle implements verbs.AH.
type addressHandle struct {
	device.Object
	nic *engine.NIC
	a   *engine.AH // the engine's address handle
}

// createAH implements device.Hooks.CreateAH. The flow label of attr is the peer's UDP port.
func (d *Device) createAH(p *device.PD, attr verbs.AHAttr) (verbs.AH, error) {
	const op = "create_ah"
	h := &addressHandle{Object: device.Object{D: &d.shared}, nic: d.nic}
	err := p.Control(op, func() (err error) {
		if attr.GRH.FlowLabel > math.MaxUint16 {
			return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: fmt.Errorf(
				"%w: flow label %#x: it is the UDP port of the peer here, 0 for the device's own", verbs.ErrInvalid, attr.GRH.FlowLabel)}
		}
		h.a, err = d.nic.CreateAH(p.ID, attr, uint16(attr.GRH.FlowLabel))
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *addressHandle) Attr() verbs.AHAttr { return h.a.Attr }

// Close implements verbs.AH: it destroys the address handle.
func (h *addressHandle) Close() error {
	return h.Destroy("destroy_ah", func() error {
		h.nic.DestroyAH(h.a)
		return nil
	})
}

// Record describes a received Write-Record (an RDMA Write with immediate data on UD): where
// it was written, and which of its bytes have arrived.
type Record = engine.Record

// Range is a range of bytes of a Write-Record that have arrived.
type Range = engine.Range

// ParseRecord returns which ranges of a Write-Record (an unreliable RDMA Write) have arrived. When
// the Write-Record ends, the device lists them in a receive of the target's UD queue pair. wc is
// the completion of the receive, and buf is its buffer, which begins with the GRH.
func ParseRecord(wc *verbs.WC, buf []byte) (Record, error) {
	const op = "parse_record"
	if wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpRecvRDMAWithImm {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: %v, %v is not the receive of a Write-Record", verbs.ErrInvalid, wc.Opcode, wc.Status)}
	}
	if int(wc.ByteLen) > len(buf) || wc.ByteLen < verbs.GRHLen {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the completion has %d bytes: it must be at least a GRH and at most the %d bytes of the buffer", verbs.ErrInvalid, wc.ByteLen, len(buf))}
	}
	r, ok := engine.ParseRecord(buf[verbs.GRHLen:wc.ByteLen])
	if !ok {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the buffer does not hold a Write-Record; receives of a reliable (RD) queue pair have none", verbs.ErrInvalid)}
	}
	return r, nil
}
