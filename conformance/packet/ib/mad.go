package ib

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Numbers of the general services interface (GSI).
const (
	GSIQPN  = 1          // queue pair of management datagrams
	GSIQKey = 0x80010000 // its Q_Key
	MADLen  = 256
)

// MAD is the header of a management datagram. The defaults are those of a CM message.
type MAD struct {
	_             struct{} `size:"24"`
	BaseVersion   *uint8   `at:"0,8" def:"1"`
	Class         *uint8   `at:"1,8" def:"7" fmt:"%#02x"`
	ClassVersion  *uint8   `at:"2,8" def:"2"`
	Method        *uint8   `at:"3,8" def:"3" fmt:"%#02x"`
	Status        *uint16  `at:"4,16" fmt:"%#04x"`
	ClassSpecific *uint16  `at:"6,16" fmt:"%#04x"`
	TID           *uint64  `at:"8,64" fmt:"%#x"`
	Attr          *Attr    `at:"16,16"`
	Resv          *uint16  `at:"18,16" fmt:"%#04x"`
	Modifier      *uint32  `at:"20,32" fmt:"%#x"`
}

// ErrNotCM is the error of a packet without a CM message.
var ErrNotCM = errors.New("no CM message")

// CM returns a packet with a CM message, from QP 1 to QP 1.
func CM(tid uint64, m Message) Packet { return CMWith(MAD{TID: &tid}, m) }

// CMWith returns a packet with the MAD header h and a CM message, from QP 1 to QP 1. A nil
// attribute is set to that of the message.
func CMWith(h MAD, m Message) Packet {
	if h.Attr == nil {
		h.Attr = new(m.attr())
	}
	b := packet.AppendFields(make([]byte, 0, MADLen), h)
	b = packet.AppendFields(b, m)
	return Datagram(0, GSIQKey, GSIQPN, b).To(GSIQPN)
}

// CM parses the packet's CM message. The error wraps [ErrNotCM] if it has none, or an unknown one.
func (p Packet) CM() (MAD, Message, error) {
	var h MAD
	if op := p.Opcode(); op != OpUDSendOnly {
		return h, nil, fmt.Errorf("%w: %v", ErrNotCM, op)
	}
	if len(p.Payload) != MADLen {
		return h, nil, fmt.Errorf("%w: datagram of %d bytes, a MAD has %d", ErrNotCM, len(p.Payload), MADLen)
	}
	body, err := packet.ParseFields(p.Payload, &h)
	if err != nil {
		return h, nil, err
	}
	if *h.Class != 7 || *h.Method != 3 { // communication management; Send
		return h, nil, fmt.Errorf("%w: class %#02x, method %#02x", ErrNotCM, *h.Class, *h.Method)
	}
	m, err := parseMessage(*h.Attr, body)
	return h, m, err
}

// parseMessage parses the body of a CM MAD. attr is the type of the message.
func parseMessage(attr Attr, body []byte) (Message, error) {
	i := int(attr) - int(AttrREQ)
	if i < 0 || i >= len(messages) {
		return nil, fmt.Errorf("%w: attribute %#04x", ErrNotCM, uint16(attr))
	}
	parsed := reflect.New(reflect.TypeOf(messages[i]))
	_, err := packet.ParseFields(body, parsed.Interface())
	m, _ := parsed.Elem().Interface().(Message)
	return m, err
}

// DiffCM returns the fields of got that differ from want; nil in want matches any value.
func DiffCM(want, got Message) packet.Differences {
	var d packet.Differences
	switch {
	case got == nil:
		d.Add("CM message", want.attr().String(), packet.NoValue)
	case want.attr() != got.attr():
		d.Add("CM message", want.attr().String(), got.attr().String())
	default:
		packet.DiffFields(&d, want.attr().String()+" ", want, got)
	}
	return d
}

// describeCM formats the message for [Packet.String].
func describeCM(h MAD, m Message) string {
	l := packet.Line{"CM " + m.attr().String()}
	if value(h.Status, 0) != 0 {
		l.Addf("status %#04x", *h.Status)
	}
	switch m := m.(type) {
	case REQ:
		l.Addf("comm %08x service %#x qp %#x starting psn %d", *m.LocalCommID, *m.ServiceID, *m.QPN, *m.StartingPSN)
	case REP:
		l.Addf("comm %08x for %08x qp %#x starting psn %d", *m.LocalCommID, *m.RemoteCommID, *m.QPN, *m.StartingPSN)
	case REJ:
		l.Addf("comm %08x for %08x: %v", *m.LocalCommID, *m.RemoteCommID, *m.Reason)
	case SIDRREQ:
		l.Addf("request %08x service %#x", *m.RequestID, *m.ServiceID)
	case SIDRREP:
		l.Addf("request %08x status %d qp %#x", *m.RequestID, *m.Status, *m.QPN)
	default: // all others have both IDs
		v := reflect.ValueOf(m)
		l.Addf("comm %08x for %08x", v.FieldByName("LocalCommID").Elem(), v.FieldByName("RemoteCommID").Elem())
	}
	return l.String()
}

// Message is a CM message: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDRREQ, SIDRREP, LAP or
// APR, as a value. A nil field has the value that Linux sends.
type Message interface{ attr() Attr }

// AttrOf returns the attribute ID of a message.
func AttrOf(m Message) Attr { return m.attr() }

// Attr is the attribute ID of a MAD, which names the message.
type Attr uint16

// The messages that cases distinguish.
const (
	AttrREQ Attr = 0x10
	AttrMRA Attr = 0x11
	AttrREP Attr = 0x13
)

// String is the name of the message.
func (a Attr) String() string {
	names := []string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}
	if i := int(a) - int(AttrREQ); i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("attribute %#04x", uint16(a))
}

// The attribute IDs of the messages.
func (REQ) attr() Attr     { return AttrREQ }
func (MRA) attr() Attr     { return AttrMRA }
func (REJ) attr() Attr     { return 0x12 }
func (REP) attr() Attr     { return AttrREP }
func (RTU) attr() Attr     { return 0x14 }
func (DREQ) attr() Attr    { return 0x15 }
func (DREP) attr() Attr    { return 0x16 }
func (SIDRREQ) attr() Attr { return 0x17 }
func (SIDRREP) attr() Attr { return 0x18 }
func (LAP) attr() Attr     { return 0x19 }
func (APR) attr() Attr     { return 0x1a }

// messages has a message of each type, in the order of their attribute IDs.
var messages = [...]Message{REQ{}, MRA{}, REJ{}, REP{}, RTU{}, DREQ{}, DREP{}, SIDRREQ{}, SIDRREP{}, LAP{}, APR{}}

// Reason is the reason of a REJ.
type Reason uint16

// Reasons that cases expect or rule out.
const (
	RejInvalidServiceID Reason = 8
	RejInvalidLID       Reason = 13 // does not exist on RoCEv2
	RejInvalidAltLID    Reason = 19 // does not exist on RoCEv2
	RejConsumer         Reason = 28
)

var reasonNames = map[Reason]string{
	1: "no QP", 3: "no resources", 4: "timeout", 5: "unsupported request", 6: "invalid communication id",
	7: "invalid communication instance", RejInvalidServiceID: "invalid service id", 9: "invalid transport",
	10: "stale connection", 12: "invalid GID", RejInvalidLID: "invalid LID", 14: "invalid SL", 15: "invalid traffic class",
	16: "invalid hop limit", RejInvalidAltLID: "invalid alternate LID", 24: "port redirect", 25: "redirect",
	26: "invalid MTU", 27: "insufficient responder resources", RejConsumer: "consumer reject", 29: "RNR retry count",
	30: "duplicate local communication id", 31: "class version", 32: "invalid flow label", 35: "vendor option",
}

// String returns the number and the name of the reason.
func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return fmt.Sprintf("%d (%s)", uint16(r), name)
	}
	return fmt.Sprintf("%d", uint16(r))
}

// AboutREQ is the number of the REQ in an MRA or a REJ about it.
const AboutREQ = 0

// Status values of a SIDR_REP.
const (
	SIDRValid       = 0
	SIDRUnsupported = 1
)

// Port spaces of rdma_cm, as in service IDs.
const (
	PortSpaceTCP = 0x06
	PortSpaceUDP = 0x11
	PortSpaceIB  = 0x3f
)

// UDQKey is the Q_Key of rdma_cm datagram services.
const UDQKey = 0x01234567

// ServiceID returns the service ID of rdma_cm for a port of a port space.
func ServiceID(space uint8, port uint16) uint64 {
	return 1<<24 /* prefix for IP addresses, annex A11 */ | uint64(space)<<16 | uint64(port)
}

// AddrHeaderLen is the length of an [AddrHeader].
const AddrHeaderLen = 36

// AddrHeader precedes the private data of a REQ and a SIDR_REQ of rdma_cm (annex A11).
type AddrHeader struct {
	Version   uint8 // 0
	IPVersion uint8 // 4 or 6; 0 is that of the addresses
	SrcPort   uint16
	Src, Dst  netip.Addr
}

// Append appends the header, after which the application's private data follows. An IPVersion
// of 0 stands for that of Src.
func (h AddrHeader) Append(b []byte) []byte {
	v := h.IPVersion
	if v == 0 {
		v = 4
		if h.Src.Is6() && !h.Src.Is4In6() {
			v = 6
		}
	}
	b = append(b, h.Version, v<<4)
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	for _, a := range []netip.Addr{h.Src, h.Dst} {
		var field [16]byte
		if a = a.Unmap(); a.Is4() {
			a4 := a.As4()
			copy(field[12:], a4[:])
		} else if a.Is6() {
			field = a.As16()
		}
		b = append(b, field[:]...)
	}
	return b
}

// ParseAddrHeader parses the address header of rdma_cm at the start of the private data, and
// returns the application's private data after it.
func ParseAddrHeader(b []byte) (h AddrHeader, appData []byte, err error) {
	if len(b) < AddrHeaderLen {
		return h, b, fmt.Errorf("private data: %w: %d bytes, the address header has %d", packet.ErrShort, len(b), AddrHeaderLen)
	}
	h = AddrHeader{Version: b[0], IPVersion: b[1] >> 4, SrcPort: binary.BigEndian.Uint16(b[2:])}
	switch h.IPVersion {
	case 4: // the address is the last four bytes of its field
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:])), netip.AddrFrom4([4]byte(b[32:]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:])), netip.AddrFrom16([16]byte(b[20:]))
	default:
		return h, b[AddrHeaderLen:], fmt.Errorf("private data: IP version %d is neither 4 nor 6", h.IPVersion)
	}
	return h, b[AddrHeaderLen:], nil
}
