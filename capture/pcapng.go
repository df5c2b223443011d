package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"
)

// Block types of pcapng.
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockNames     = 4
	blockEnhanced  = 6

	sectionMagic = 0x1A2B3C4D
)

// Options that are decoded.
const (
	optionEnd        = 0
	optionComment    = 1
	optionName       = 2 // of an interface
	optionFlags      = 2 // of a packet
	optionResolution = 9
	optionOffset     = 14
)

// pcapngFile is a pcapng file.
type pcapngFile struct {
	*section
	clocks []interfaceClock // by interface
}

// interfaceClock converts the timestamps of an interface.
type interfaceClock struct {
	perSecond uint64
	offset    int64 // seconds
	snapLen   uint32
}

// openPcapng reads the first section header.
func openPcapng(s *section) (*pcapngFile, error) {
	f := &pcapngFile{section: s}
	head, err := f.in.read(8)
	if err == nil {
		err = f.readSection([4]byte(head[4:]))
	}
	if err != nil {
		return nil, fmt.Errorf("header of a pcapng file: %w", truncatedIfEOF(err))
	}
	return f, nil
}

// next implements source: it reads blocks until it finds a packet.
func (f *pcapngFile) next(p *Packet) error {
	for {
		head, err := f.in.read(8) // type and length
		if err != nil {
			return err
		}
		kind, length := f.order.Uint32(head), f.order.Uint32(head[4:])
		if kind == blockSection { // the byte order may change
			if err := f.readSection([4]byte(head[4:])); err != nil {
				return err
			}
			continue
		}
		if length < 12 || length%4 != 0 {
			return fmt.Errorf("a block of type %#x claims %d bytes, which none can have", kind, length)
		}
		switch kind {
		case blockInterface, blockNames, blockOldPacket, blockSimple, blockEnhanced:
		default:
			skipped, err := io.CopyN(io.Discard, f.in.r, int64(length)-8)
			if f.in.offset += skipped; err != nil {
				return truncatedIfEOF(err)
			}
			continue
		}
		body, err := f.readBody(kind, length, len(head))
		if err != nil {
			return err
		}
		switch kind {
		case blockInterface:
			err = f.addInterface(body)
		case blockNames:
			err = f.hosts.parseBlock(body, f.order)
		case blockSimple:
			return f.simplePacket(body, p)
		default:
			return f.enhancedPacket(kind, body, p)
		}
		if err != nil {
			return err
		}
	}
}

// readBody returns the rest of a block of length octets, of which alreadyRead have been read. It
// checks and removes the length at the end of the block.
func (f *pcapngFile) readBody(kind, length uint32, alreadyRead int) ([]byte, error) {
	if length > maxBlockLen {
		return nil, fmt.Errorf("a block of type %#x claims %d bytes; the limit is %d", kind, length, maxBlockLen)
	}
	b, err := f.in.read(int(length) - alreadyRead)
	if err != nil {
		return nil, truncatedIfEOF(err)
	}
	end := len(b) - 4
	if again := f.order.Uint32(b[end:]); again != length {
		return nil, fmt.Errorf("a block of type %#x begins with length %d and ends with length %d", kind, length, again)
	}
	return b[:end], nil
}

// readSection reads the rest of a section header block after its type and length. rawLength has the
// octets of the length, whose byte order follows from the magic number after it. readSection clears
// the interfaces and names, which are per section.
func (f *pcapngFile) readSection(rawLength [4]byte) error {
	magic, err := f.in.read(4)
	if err != nil {
		return truncatedIfEOF(err)
	}
	switch uint32(sectionMagic) {
	case binary.LittleEndian.Uint32(magic):
		f.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic):
		f.order = binary.BigEndian
	default:
		return errors.New("a section of unknown byte order")
	}
	length := f.order.Uint32(rawLength[:])
	if length < 28 || length%4 != 0 {
		return fmt.Errorf("a section header claims %d bytes, which none can have", length)
	}
	body, err := f.readBody(blockSection, length, 12) // type, length and magic number
	if err != nil {
		return err
	}
	if major := f.order.Uint16(body); major != 1 {
		return fmt.Errorf("a section of version %d: only version 1 is known", major)
	}
	f.clocks, f.interfaces, f.hosts = f.clocks[:0], f.interfaces[:0], hostNames{}
	// Options of a section are only checked for their length.
	return f.forEachOption(body[12:], func(uint16, []byte) error { return nil })
}

// addInterface reads an interface description block: the link type, and from its options the name
// and the clock (the offset and the resolution of timestamps).
func (f *pcapngFile) addInterface(b []byte) error {
	if len(b) < 8 {
		return errors.New("an interface description is too short")
	}
	if len(f.clocks) == maxInterfaces {
		return fmt.Errorf("more than %d interfaces in a section", maxInterfaces)
	}
	clock := interfaceClock{perSecond: 1e6, snapLen: f.order.Uint32(b[4:])}
	iface := Interface{Index: len(f.clocks), LinkType: LinkType(f.order.Uint16(b))}
	err := f.forEachOption(b[8:], func(code uint16, value []byte) error {
		switch {
		case code == optionName:
			iface.Name = string(value)
		case code == optionOffset && len(value) == 8:
			clock.offset = int64(f.order.Uint64(value))
		case code == optionResolution && len(value) == 1:
			var ok bool
			if clock.perSecond, ok = ticksPerSecond(value[0]); !ok {
				return fmt.Errorf("interface %q has a clock of resolution %#x", iface.Name, value[0])
			}
		}
		return nil
	})
	f.clocks, f.interfaces = append(f.clocks, clock), append(f.interfaces, iface)
	return err
}

// ticksPerSecond decodes the option if_tsresol: the exponent of a power of 2 if the highest bit is
// set, else of 10. ok is false if the number is too large.
func ticksPerSecond(v uint8) (perSecond uint64, ok bool) {
	exp := v & 0x7F
	if v&0x80 != 0 {
		return 1 << exp, exp < 64
	}
	perSecond = 1
	for range min(exp, 20) {
		perSecond *= 10
	}
	return perSecond, exp < 20
}

// enhancedPacket decodes an enhanced packet block or an obsolete packet block, which differ in the
// size of the interface number, into p.
func (f *pcapngFile) enhancedPacket(kind uint32, b []byte, p *Packet) error {
	if len(b) < 20 {
		return errors.New("a packet block is too short")
	}
	iface := f.order.Uint32(b)
	if kind == blockOldPacket {
		iface = uint32(f.order.Uint16(b))
	}
	if int64(iface) >= int64(len(f.clocks)) {
		return fmt.Errorf("a packet of interface %d: the section has %d", iface, len(f.clocks))
	}
	ticks := uint64(f.order.Uint32(b[4:]))<<32 | uint64(f.order.Uint32(b[8:]))
	captured, length := f.order.Uint32(b[12:]), f.order.Uint32(b[16:])
	b = b[20:]
	if int64(captured) > int64(len(b)) {
		return fmt.Errorf("a packet claims %d bytes in a block of %d", captured, len(b))
	}
	p.Interface, p.Time = f.interfaces[iface], f.clocks[iface].time(ticks)
	p.Data, p.Length = b[:captured:captured], max(int(length), int(captured))
	return f.forEachOption(b[min((int(captured)+3)&^3, len(b)):], func(code uint16, value []byte) error {
		switch {
		case code == optionComment && len(p.Comments) < maxComments:
			p.Comments = append(p.Comments, string(value))
		case code == optionFlags && len(value) == 4:
			p.Direction = Direction(f.order.Uint32(value) & 3)
		}
		return nil
	})
}

// simplePacket decodes a simple packet block, which has no time and belongs to the first interface.
func (f *pcapngFile) simplePacket(b []byte, p *Packet) error {
	if len(f.clocks) == 0 || len(b) < 4 {
		return errors.New("a simple packet block without an interface or a length")
	}
	length := f.order.Uint32(b)
	captured := min(int64(length), int64(len(b)-4))
	if snap := f.clocks[0].snapLen; snap != 0 {
		captured = min(captured, int64(snap))
	}
	p.Interface, p.Data, p.Length = f.interfaces[0], b[4:4+captured:4+captured], max(int(length), int(captured))
	return nil
}

// time converts a timestamp; it returns the zero time if it is out of range.
func (i *interfaceClock) time(ticks uint64) time.Time {
	hi, lo := bits.Mul64(ticks%i.perSecond, 1e9)
	nano, _ := bits.Div64(hi, lo, i.perSecond) // does not overflow: ticks%perSecond < perSecond
	sec := ticks / i.perSecond
	const limit = math.MaxInt32 << 8 // 17,000 years
	if sec > limit || i.offset > limit || i.offset < -limit {
		return time.Time{}
	}
	return time.Unix(int64(sec)+i.offset, int64(nano)).UTC()
}

// forEachOption calls do for every option in b.
func (f *pcapngFile) forEachOption(b []byte, do func(code uint16, value []byte) error) error {
	for len(b) >= 4 {
		code, n := f.order.Uint16(b), int(f.order.Uint16(b[2:]))
		b = b[4:]
		if code == optionEnd {
			return nil
		}
		if n > len(b) {
			return fmt.Errorf("option %d claims %d bytes, %d are left", code, n, len(b))
		}
		if err := do(code, b[:n]); err != nil {
			return err
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}
