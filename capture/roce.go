package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// RoCE is a RoCEv2 packet.
type RoCE struct {
	wire.Packet // as far as captured; Payload without padding
	// HeadersComplete: the opcode is known and all its headers were captured.
	HeadersComplete bool
	ICRC            ChecksumStatus
	// ICRCValue is the ICRC field, if it was captured.
	ICRCValue uint32
	CM        *CM // nil if it is no CM message

	payloadLen int // on the wire
}

// dissectRoCE decodes a UDP payload. b is its captured part; missing is the number of octets after
// b that were not captured.
func (s *Stream) dissectRoCE(b []byte, missing int) {
	const gsiQP = 1 // the general services QP, which the CM uses
	p := &s.p
	p.Protocol = "RoCEv2"
	r := new(RoCE)
	if err := r.parse(b, missing); err != nil {
		p.Note = fmt.Sprintf("%v in %d bytes", err, len(b)+missing)
		if missing == 0 {
			p.mark(MarkMalformed, err.Error())
		}
		if len(b) < wire.BTHLen {
			return
		}
	}
	p.PDUs = append(p.PDUs, r)
	if missing == 0 {
		r.ICRC, r.ICRCValue = checkICRC(p, b)
	}
	if r.ICRC == ChecksumBad {
		p.mark(MarkChecksum, "ICRC is wrong")
	}
	if r.BTH.Opcode == wire.CNP {
		p.Protocol = "CNP"
		p.mark(MarkCongestion, "congestion notification")
	}
	if !r.HeadersComplete {
		return
	}
	if r.BTH.DestQP == gsiQP && r.BTH.Opcode.Transport() == wire.TransportUD {
		if r.CM = parseCM(r.Payload); r.CM != nil {
			p.Protocol = "CM"
			if r.CM.RejectReason != "" {
				p.mark(MarkRejected, r.CM.RejectReason)
			}
		}
	}
	// The receiver drops a packet with a wrong ICRC.
	if r.ICRC != ChecksumBad {
		s.trackPSN(r)
	}
}

// parse decodes a packet of which b was captured, and missing octets after b were not.
func (r *RoCE) parse(b []byte, missing int) error {
	if missing == 0 {
		err := r.Packet.Parse(b)
		r.HeadersComplete = err == nil
		r.payloadLen = len(r.Payload)
		if errors.Is(err, wire.ErrOpcode) {
			return fmt.Errorf("opcode %v is reserved", r.BTH.Opcode)
		}
		return err
	}
	rest, err := r.BTH.Parse(b)
	if err != nil {
		return errors.New("BTH is cut off")
	}
	info, known := r.BTH.Opcode.Info()
	if !known {
		return fmt.Errorf("opcode %v is reserved", r.BTH.Opcode)
	}
	if len(b) < info.HeaderLen {
		return fmt.Errorf("headers of %v are cut off", r.BTH.Opcode)
	}
	// Parse needs padding of at most 3 octets and an ICRC after the headers: zeros replace them.
	var buf [wire.MaxHeaderLen + 3 + wire.ICRCLen]byte
	n := copy(buf[:], b[:info.HeaderLen])
	if err := r.Packet.Parse(buf[:n+3+wire.ICRCLen]); err != nil {
		return err
	}
	r.HeadersComplete = true
	r.payloadLen = max(0, len(b)+missing-info.HeaderLen-wire.ICRCLen-int(r.BTH.PadCount))
	rest = rest[info.HeaderLen-wire.BTHLen:]
	r.Payload = rest[:min(len(rest), r.payloadLen)]
	return nil
}

// checkICRC verifies the ICRC of a complete datagram, and returns the ICRC field. b is the UDP
// payload; bytes may follow it in the IP packet.
func checkICRC(p *Packet, b []byte) (ChecksumStatus, uint32) {
	if len(b) < wire.BTHLen+wire.ICRCLen {
		return ChecksumUnknown, 0
	}
	value := binary.LittleEndian.Uint32(b[len(b)-wire.ICRCLen:])
	correct, err := ib.ICRC(p.IP.packet[:p.IP.headerLen+udpHeaderLen+len(b)])
	if err != nil || correct != value {
		return ChecksumBad, value
	}
	return ChecksumGood, value
}

// Op implements PDU: the opcode, or the CM message.
func (r *RoCE) Op() string {
	if r.CM != nil {
		return "CM " + r.CM.Name()
	}
	if _, known := r.BTH.Opcode.Info(); !known {
		return "opcode " + r.BTH.Opcode.String()
	}
	return r.BTH.Opcode.String()
}

// PayloadLen implements PDU.
func (r *RoCE) PayloadLen() int { return r.payloadLen }

// hasAETH reports whether the packet is a response with a syndrome, which was captured.
func (r *RoCE) hasAETH() bool {
	info, _ := r.BTH.Opcode.Info()
	return r.HeadersComplete && info.Headers.Has(wire.HasAETH)
}

// aliases returns other names of the operation for filters: Op without the transport, and the type
// of an acknowledgement.
func (r *RoCE) aliases() (names []string) {
	if _, op, ok := strings.Cut(r.Op(), " "); ok {
		names = append(names, op)
	}
	if r.hasAETH() {
		switch r.AETH.Syndrome.Kind() {
		case wire.SyndromeAck:
			names = append(names, "ACK")
		case wire.SyndromeRNR:
			names = append(names, "RNR", "RNR NAK")
		case wire.SyndromeNak:
			names = append(names, "NAK")
		}
	}
	return names
}
