package capture

import (
	"encoding/binary"
	"fmt"
	"time"
)

// source reads the packets of a pcap or pcapng file, one by one. next sets the fields of a packet
// that its record has, from Time to Comments; Data is valid until the next call.
type source interface{ next(*Packet) error }

// section is the state of a pcap file, or of the current section of a pcapng file.
type section struct {
	in         *input
	order      binary.ByteOrder
	interfaces []Interface // described so far
	hosts      hostNames
}

// Magic numbers of pcap, read as little endian.
const (
	magicMicro        = 0xA1B2C3D4
	magicNano         = 0xA1B23C4D
	magicMicroSwapped = 0xD4C3B2A1
	magicNanoSwapped  = 0x4D3CB2A1
)

// pcapFile is a classic pcap file.
type pcapFile struct {
	*section
	nano bool
}

// openPcap reads the file header. magic are the first four bytes, read as little endian.
func openPcap(s *section, magic uint32) (*pcapFile, error) {
	f := &pcapFile{section: s, nano: magic == magicNano || magic == magicNanoSwapped}
	if magic == magicMicroSwapped || magic == magicNanoSwapped {
		f.order = binary.BigEndian
	}
	b, err := f.in.read(24)
	if err != nil {
		return nil, fmt.Errorf("header of a pcap file: %w", truncatedIfEOF(err))
	}
	if major := f.order.Uint16(b[4:]); major != 2 {
		return nil, fmt.Errorf("pcap file of version %d: only version 2 is known", major)
	}
	// The upper bits of the field are about the FCS.
	f.interfaces = []Interface{{LinkType: LinkType(f.order.Uint32(b[20:]) & 0xFFFF)}}
	return f, nil
}

// next implements source: it reads the next packet.
func (f *pcapFile) next(p *Packet) error {
	b, err := f.in.read(16) // the record header
	if err != nil {
		return err
	}
	sec, frac := f.order.Uint32(b), f.order.Uint32(b[4:])
	captured, length := f.order.Uint32(b[8:]), f.order.Uint32(b[12:])
	if captured > maxPacketLen {
		return fmt.Errorf("a packet claims %d bytes; the limit is %d", captured, maxPacketLen)
	}
	perSecond, nanoseconds := uint32(1e6), uint32(1e3)
	if f.nano {
		perSecond, nanoseconds = 1e9, 1
	}
	if frac >= perSecond {
		return fmt.Errorf("a timestamp has a fraction of %d/%d seconds, which is a second or more", frac, perSecond)
	}
	p.Interface, p.Time, p.Length = f.interfaces[0], time.Unix(int64(sec), int64(frac*nanoseconds)).UTC(), max(int(length), int(captured))
	if p.Data, err = f.in.read(int(captured)); err != nil && captured > 0 {
		return truncatedIfEOF(err)
	}
	return nil
}
