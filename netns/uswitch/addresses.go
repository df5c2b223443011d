package uswitch

import (
	"encoding/binary"
	"net"
)

// address is an Ethernet address, in the low 48 bits.
type address uint64

func destination(b []byte) address { return address(binary.BigEndian.Uint64(b) >> 16) }
func source(b []byte) address      { return address(binary.BigEndian.Uint64(b[4:]) & (1<<48 - 1)) }

// group reports whether a is of many stations.
func (a address) group() bool { return a>>40&1 != 0 }

// reserved reports whether a is one of those that bridges keep to their own cable.
func (a address) reserved() bool { return a&^0xf == 0x0180c2000000 }

type place struct {
	port  int32
	fixed bool
}

// addresses is what a switch knows of who is where. Nothing is forgotten by age:
// a station that moves is found again with its first frame.
type addresses struct {
	of    map[address]place
	limit int // of those learnt
	given int
}

func newAddresses(limit int) addresses {
	return addresses{of: make(map[address]place), limit: limit}
}

func (t *addresses) fix(a net.HardwareAddr, port int) {
	var b [8]byte
	copy(b[2:], a)
	key := address(binary.BigEndian.Uint64(b[:]))
	if old, ok := t.of[key]; !ok || !old.fixed {
		t.given++
	}
	t.of[key] = place{int32(port), true}
}

// learn notes that a was heard at port. It returns the port where a was before,
// -1 if none, and false if there is no room for it.
func (t *addresses) learn(a address, port int) (before int, ok bool) {
	old, known := t.of[a]
	switch {
	case known && (old.fixed || old.port == int32(port)):
		return -1, true
	case known:
		t.of[a] = place{port: int32(port)}
		return int(old.port), true
	case len(t.of)-t.given >= t.limit:
		return -1, false
	}
	t.of[a] = place{port: int32(port)}
	return -1, true
}

// forget drops what was learnt at a port.
func (t *addresses) forget(port int) {
	for a, p := range t.of {
		if p.port == int32(port) && !p.fixed {
			delete(t.of, a)
		}
	}
}
