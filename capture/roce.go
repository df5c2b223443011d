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
	wire.Packet // as far as it was recorded; Payload without pad
	// HeadersComplete says that the opcode is known and all its headers are there.
	HeadersComplete bool
	ICRC            ChecksumStatus
	// ICRCValue is what the packet ends in, if that was recorded.
	ICRCValue uint32
	CM        *CM // the message of the connection manager, if it is one

	payload int // on the wire
}

// general is the queue pair of the general services, where the CM lives.
const general = 1

// dissectRoCE decodes b, a UDP payload of which missing octets were not
// recorded.
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
	if r.BTH.DestQP == general && r.BTH.Opcode.Transport() == wire.TransportUD {
		if r.CM = parseCM(r.Payload); r.CM != nil {
			p.Protocol = "CM"
			if r.CM.RejectReason != "" {
				p.mark(MarkRejected, r.CM.RejectReason)
			}
		}
	}
	// A packet that its receiver drops says nothing of its flow.
	if r.ICRC != ChecksumBad {
		s.follow(r)
	}
}

// parse decodes a packet whose end may not have been recorded.
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
	// The headers alone, with the least that may follow them.
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

// checkICRC judges the ICRC of a whole packet. Fields that may change on the
// way count as ones; so does, by the rules, no other.
func checkICRC(p *Packet, b []byte) (ChecksumStatus, uint32) {
	if len(b) < wire.BTHLen+wire.ICRCLen {
		return ChecksumUnknown, 0
	}
	value := binary.LittleEndian.Uint32(b[len(b)-wire.ICRCLen:])
	good := false
	if p.IP.DontFragment && len(p.IP.header) <= wire.IPv4HeaderLen && p.IP.Extensions == 0 {
		good = wire.NewICRC(p.Src(), p.Dst()).Check(p.IP.ID, b)
	} else {
		good = slowICRC(p, b) == value
	}
	if good {
		return ChecksumGood, value
	}
	return ChecksumBad, value
}

// slowICRC computes the ICRC over headers that the codec does not expect: IPv4
// that may be fragmented, or with options.
func slowICRC(p *Packet, b []byte) uint32 {
	sum := crc32.ChecksumIEEE(bytes.Repeat([]byte{0xFF}, 8))
	ip := bytes.Clone(p.IP.header)
	if len(ip) == 0 { // IPv6 with extension headers, which RoCEv2 does not have
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
