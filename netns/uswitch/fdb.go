package uswitch

import (
	"encoding/binary"
	"net"
)

// macAddr is a MAC address, in the low 48 bits.
type macAddr uint64

// destination and source return the addresses of frame b.
func destination(b []byte) macAddr { return macAddr(binary.BigEndian.Uint64(b) >> 16) }
func source(b []byte) macAddr      { return macAddr(binary.BigEndian.Uint64(b[4:]) & (1<<48 - 1)) }

// isGroup reports whether a is a multicast or broadcast address.
func (a macAddr) isGroup() bool { return a>>40&1 != 0 }

// isLinkLocal reports whether a is in the reserved range that bridges do not forward (IEEE 802.1Q).
func (a macAddr) isLinkLocal() bool { return a&^0xf == 0x0180c2000000 }

type fdbEntry struct {
	port   int32
	static bool
}

// fdb is the forwarding database: MAC addresses and their ports. Entries do not
// age; a station that moves is learnt again with its first frame.
type fdb struct {
	entries   map[macAddr]fdbEntry
	maxLearnt int // learnt entries
	static    int // number of static entries
}

func newFDB(limit int) fdb {
	return fdb{entries: make(map[macAddr]fdbEntry), maxLearnt: limit}
}

// addStatic adds an entry that learn does not replace.
func (t *fdb) addStatic(a net.HardwareAddr, port int) {
	var b [8]byte
	copy(b[2:], a)
	key := macAddr(binary.BigEndian.Uint64(b[:]))
	if old, ok := t.entries[key]; !ok || !old.static {
		t.static++
	}
	t.entries[key] = fdbEntry{int32(port), true}
}

// learn records that a was seen at port, unless its entry is static. It returns the previous port
// of a, -1 if there is none or it is unchanged, and false if the table is full.
func (t *fdb) learn(a macAddr, port int) (before int, ok bool) {
	old, known := t.entries[a]
	switch {
	case known && (old.static || old.port == int32(port)):
		return -1, true
	case known:
		t.entries[a] = fdbEntry{port: int32(port)}
		return int(old.port), true
	case len(t.entries)-t.static >= t.maxLearnt:
		return -1, false
	}
	t.entries[a] = fdbEntry{port: int32(port)}
	return -1, true
}

// flushPort removes the learnt entries of a port.
func (t *fdb) flushPort(port int) {
	for a, p := range t.entries {
		if p.port == int32(port) && !p.static {
			delete(t.entries, a)
		}
	}
}
