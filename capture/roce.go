package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

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

	payload int // on the wire
}

// gsiQP is the general services QP, which the CM uses.
const gsiQP = 1

// dissectRoCE decodes b, a UDP payload whose last missing octets were not captured.
func (s *Stream) dissectRoCE(b []byte, missing int) {
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
	p.PDUs = append(p.PDUs, PDU{RoCE: r})
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

// parse decodes a packet whose last missing octets were not captured.
func (r *RoCE) parse(b []byte, missing int) error {
	if missing == 0 {
		err := r.Packet.Parse(b)
		r.HeadersComplete = err == nil
		r.payload = len(r.Payload)
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
	// Parse the headers, followed by the maximum padding and an ICRC.
	var buf [wire.MaxHeaderLen + 3 + wire.ICRCLen]byte
	n := copy(buf[:], b[:info.HeaderLen])
	if err := r.Packet.Parse(buf[:n+3+wire.ICRCLen]); err != nil {
		return err
	}
	r.HeadersComplete = true
	r.payload = max(0, len(b)+missing-info.HeaderLen-wire.ICRCLen-int(r.BTH.PadCount))
	rest = rest[info.HeaderLen-wire.BTHLen:]
	r.Payload = rest[:min(len(rest), r.payload)]
	return nil
}

// checkICRC verifies the ICRC of a complete packet.
func checkICRC(p *Packet, b []byte) (ChecksumStatus, uint32) {
	if len(b) < wire.BTHLen+wire.ICRCLen {
		return ChecksumUnknown, 0
	}
	value := binary.LittleEndian.Uint32(b[len(b)-wire.ICRCLen:])
	good := false
	if p.IP.DontFragment && len(p.IP.header) <= wire.IPv4HeaderLen && p.IP.Extensions == 0 {
		good = wire.NewICRC(p.Src(), p.Dst()).Check(p.IP.ID, b)
	} else {
		good = genericICRC(p, b) == value
	}
	if good {
		return ChecksumGood, value
	}
	return ChecksumBad, value
}

// genericICRC computes the ICRC for IPv4 headers that package wire does not support:
// with options, or without the DF flag.
func genericICRC(p *Packet, b []byte) uint32 {
	sum := crc32.ChecksumIEEE(bytes.Repeat([]byte{0xFF}, 8))
	ip := bytes.Clone(p.IP.header)
	if len(ip) == 0 { // IPv6 with extension headers, which RoCEv2 does not use
		return 0
	}
	ip[1], ip[8], ip[10], ip[11] = 0xFF, 0xFF, 0xFF, 0xFF
	sum = crc32.Update(sum, crc32.IEEETable, ip)
	udp := binary.BigEndian.AppendUint16(nil, p.UDP.SrcPort)
	udp = binary.BigEndian.AppendUint16(udp, p.UDP.DstPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(p.UDP.Length+8))
	udp = append(udp, 0xFF, 0xFF)
	udp = append(udp, b[:wire.BTHLen]...)
	udp[8+4] = 0xFF
	sum = crc32.Update(sum, crc32.IEEETable, udp)
	return crc32.Update(sum, crc32.IEEETable, b[wire.BTHLen:len(b)-wire.ICRCLen])
}

func (r *RoCE) op() string {
	if r.CM != nil {
		return "CM " + r.CM.Name()
	}
	if _, known := r.BTH.Opcode.Info(); !known {
		return "opcode " + r.BTH.Opcode.String()
	}
	return r.BTH.Opcode.String()
}

func (r *RoCE) payloadLen() int { return r.payload }

func (r *RoCE) aliases() (names []string) {
	if _, op, ok := strings.Cut(r.op(), " "); ok {
		names = append(names, op)
	}
	if info, _ := r.BTH.Opcode.Info(); r.HeadersComplete && info.Headers.Has(wire.HasAETH) {
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
