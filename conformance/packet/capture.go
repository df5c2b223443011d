package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// LinkType is the link-layer header type of a capture.
type LinkType uint16

// Link types.
const (
	LinkEthernet LinkType = 1
	LinkRaw      LinkType = 101 // the IP header
)

// Captured is a packet of a capture file.
type Captured struct {
	// At is the time since the epoch.
	At   time.Duration
	Link LinkType
	// Data are the captured bytes; Size is the length of the packet, 0 for len(Data).
	Data []byte
	Size int
	// Out reports that the capturing host sent the packet; pcapng only.
	Out bool
	// Comment is the packet's comment; pcapng only.
	Comment string
}

// IP returns the IP packet with the padding of its frame; ok is false if there is none.
func (c Captured) IP() (b []byte, ok bool) {
	switch c.Link {
	case LinkRaw:
		return c.Data, true
	case LinkEthernet:
		h, b, err := ParseEthernet(c.Data)
		return b, err == nil && (h.Type == EtherTypeIPv4 || h.Type == EtherTypeIPv6)
	}
	return nil, false
}

// ErrFormat is the error of an invalid capture file.
var ErrFormat = errors.New("invalid capture file")

// maxPacket limits the length of a packet, to reject corrupt files.
const maxPacket = 1 << 20

// Magic numbers of the formats, in the byte order of the file.
const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
	magicNG    = 0x0a0d0d0a
	magicOrder = 0x1a2b3c4d
)

// ReadCapture reads all packets of a pcap or pcapng file. With an error it returns the
// packets before it.
func ReadCapture(r io.Reader) ([]Captured, error) {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if binary.BigEndian.Uint32(magic[:]) == magicNG {
		return readNG(r)
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(magic[:]) {
		case magicMicro:
			return readClassic(r, order, time.Microsecond)
		case magicNano:
			return readClassic(r, order, time.Nanosecond)
		}
	}
	return nil, fmt.Errorf("%w: neither pcap nor pcapng: it begins with %x", ErrFormat, magic)
}

// readClassic reads the packets of a pcap file after its magic number. unit is that of the
// fraction in timestamps.
func readClassic(r io.Reader, order binary.ByteOrder, unit time.Duration) (all []Captured, err error) {
	var fileHeader [20]byte
	if _, err := io.ReadFull(r, fileHeader[:]); err != nil {
		return nil, fmt.Errorf("%w: file header: %w", ErrFormat, err)
	}
	link := LinkType(order.Uint32(fileHeader[16:]))
	for {
		var packetHeader [16]byte
		if _, err := io.ReadFull(r, packetHeader[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			return all, fmt.Errorf("%w: packet %d: %w", ErrFormat, len(all)+1, err)
		}
		n := order.Uint32(packetHeader[8:])
		if n > maxPacket {
			return all, fmt.Errorf("%w: packet %d has %d bytes", ErrFormat, len(all)+1, n)
		}
		c := Captured{
			At:   time.Duration(order.Uint32(packetHeader[:]))*time.Second + time.Duration(order.Uint32(packetHeader[4:]))*unit,
			Link: link, Data: make([]byte, n), Size: int(order.Uint32(packetHeader[12:])),
		}
		if _, err := io.ReadFull(r, c.Data); err != nil {
			return all, fmt.Errorf("%w: packet %d: %w", ErrFormat, len(all)+1, err)
		}
		all = append(all, c)
	}
}

// WritePcap writes a pcap file with nanosecond timestamps, for packets of one link type.
func WritePcap(w io.Writer, link LinkType, packets []Captured) error {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, magicNano)
	b = le.AppendUint32(b, 2|4<<16)   // version 2.4
	b = append(b, make([]byte, 8)...) // time zone and accuracy
	b = le.AppendUint32(b, maxPacket)
	b = le.AppendUint32(b, uint32(link))
	for i, c := range packets {
		if c.Link != link {
			return fmt.Errorf("pcap: packet %d has link type %d in a file of link type %d; only pcapng can mix them", i+1, c.Link, link)
		}
		b = le.AppendUint32(b, uint32(c.At/time.Second))
		b = le.AppendUint32(b, uint32(c.At%time.Second))
		b = le.AppendUint32(b, uint32(len(c.Data)))
		b = le.AppendUint32(b, uint32(max(c.Size, len(c.Data))))
		b = append(b, c.Data...)
	}
	_, err := w.Write(b)
	return err
}
