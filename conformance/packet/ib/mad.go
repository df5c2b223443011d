package ib

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

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

// CMWith is CM with a MAD header; its nil fields get the values of the message.
func CMWith(h MAD, m Message) Packet {
	if h.Attr == nil {
		h.Attr = new(m.attr())
	}
	b := packet.AppendFields(make([]byte, 0, MADLen), h)
	b = packet.AppendFields(b, m)
	return Datagram(0, GSIQKey, GSIQPN, b).To(GSIQPN)
}

// CM parses the CM message of the packet. It wraps [ErrNotCM] if there is none, or one of
// an unknown attribute.
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
	if *h.Class != 7 || *h.Method != 3 {
		return h, nil, fmt.Errorf("%w: class %#02x, method %#02x", ErrNotCM, *h.Class, *h.Method)
	}
	m, err := parseMessage(*h.Attr, body)
	return h, m, err
}

// parseMessage parses the body of a MAD with this attribute.
func parseMessage(attr Attr, body []byte) (Message, error) {
	i := int(attr) - int(AttrREQ)
	if i < 0 || i >= len(messages) {
		return nil, fmt.Errorf("%w: attribute %#04x", ErrNotCM, uint16(attr))
	}
	to := reflect.New(reflect.TypeOf(messages[i]))
	_, err := packet.ParseFields(body, to.Interface())
	m, _ := to.Elem().Interface().(Message)
	return m, err
}

// DiffCM returns the fields of got that differ from the expected message.
func DiffCM(want, got Message) packet.Differences {
	var d packet.Differences
	switch {
	case got == nil:
		d.Add("CM message", want.attr().String(), "none")
	case want.attr() != got.attr():
		d.Add("CM message", want.attr().String(), got.attr().String())
	default:
		packet.DiffFields(&d, want.attr().String()+" ", want, got)
	}
	return d
}

// describeCM formats the message for [Packet.String].
func describeCM(h MAD, m Message) string {
	l := line{"CM " + m.attr().String()}
	if value(h.Status, 0) != 0 {
		l.addf("status %#04x", *h.Status)
	}
	switch m := m.(type) {
	case REQ:
		l.addf("comm %08x service %#x qp %#x starting psn %d", *m.LocalCommID, *m.ServiceID, *m.QPN, *m.StartingPSN)
	case REP:
		l.addf("comm %08x for %08x qp %#x starting psn %d", *m.LocalCommID, *m.RemoteCommID, *m.QPN, *m.StartingPSN)
	case REJ:
		l.addf("comm %08x for %08x: %v", *m.LocalCommID, *m.RemoteCommID, *m.Reason)
	case SIDRREQ:
		l.addf("request %08x service %#x", *m.RequestID, *m.ServiceID)
	case SIDRREP:
		l.addf("request %08x status %d qp %#x", *m.RequestID, *m.Status, *m.QPN)
	default:
		v := reflect.ValueOf(m)
		l.addf("comm %08x for %08x", v.FieldByName("LocalCommID").Elem(), v.FieldByName("RemoteCommID").Elem())
	}
	return strings.Join(l, " ")
}
