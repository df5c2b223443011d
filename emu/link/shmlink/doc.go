// Package shmlink is a link.PacketLink over rings in memory that the processes of one machine share.
// It needs no network namespace, socket or privilege. softroce and dgiwarp use it.
//
// A Cable is the memory: a file without a name, which processes inherit. It has ports with
// addresses, and a ring from each port to each port, also to itself. A ring has one producer and one
// consumer. [Open] opens the port that has an address. If the cable has a switch, all
// datagrams go to the port that OpenSwitch opens, which passes them on.
//
// Datagrams arrive in order, unchanged and with all fields of link.Datagram. Send reports a full
// link while a ring is full. If its consumer takes nothing for PauseLimit, datagrams to it are lost,
// as with the PFC watchdog of a switch, so that a dead host delays nobody for longer. Datagrams to
// multicast groups go to all ports that have room; links drop those of groups they have not joined.
//
// A link trusts nothing in the memory: it checks all lengths and positions, and copies each record
// before it is parsed, except for the payload of long ones after [Link.AllowInPlace]. It counts
// invalid records (Stats.Garbage) and skips what its peer wrote. A process that writes to rings of
// others can lose or forge their packets, but not crash them.
//
// Packets that are built in the memory of SendBuffer are sent without a copy.
//
// A sleeping consumer waits on a futex in the memory; producers make a system call only if it
// sleeps. On systems other than Linux a waiting consumer looks again after at most a millisecond.
//
// A Link is not safe for concurrent use, except that any goroutine may call Close and Wake, and one
// goroutine may be in WaitReadable while another one sends and receives.
package shmlink

import (
	"errors"
	"net/netip"
	"time"
)

// Limits and defaults of a Cable.
const (
	// MaxPorts is the largest number of ports, with that of the switch: there are as many rings as
	// pairs of ports.
	MaxPorts = 128
	// MaxAddrs is the largest number of addresses of a port.
	MaxAddrs = 4
	// PauseLimit is how long a full ring, from which nothing is taken, stops a sender.
	PauseLimit = 20 * time.Millisecond

	defaultMTU = 9000
	minMTU     = 256
	maxMTU     = 16 << 10
	// memoryBytes is the size of all rings together, from which the size of a ring follows, between
	// minRing and maxRing.
	memoryBytes = 64 << 20
	minRing     = 64 << 10
	maxRing     = 1 << 20
	// defaultHopLimit is the hop limit of datagrams that are sent with 0.
	defaultHopLimit = 64
)

// Config configures a Cable.
type Config struct {
	// Ports are the addresses of each port.
	Ports [][]netip.Addr
	// MTU is the largest IP packet; 0 means 9000.
	MTU int
	// RingBytes is the size of a ring, a power of two; 0 means between 64 KiB and 1 MiB.
	RingBytes int
	// Switch adds a port to which all others send: see Cable.OpenSwitch.
	Switch bool
}

// Stats are the counters of a Link.
type Stats struct {
	// Datagrams and bytes of UDP payload that were sent and received.
	SentDatagrams, SentBytes uint64
	RecvDatagrams, RecvBytes uint64
	// SendFull counts calls of Send that found a ring full.
	SendFull uint64
	// Wakes counts system calls that woke a consumer.
	Wakes uint64
	// Datagrams that Send took and did not deliver, by reason.
	LostTooBig      uint64 // larger than the MTU
	LostUnreachable uint64 // no port has the address
	LostPaused      uint64 // the ring is full, and its consumer took nothing for PauseLimit
	// RecvUnwanted counts datagrams to another address or port, or to a group not joined.
	RecvUnwanted uint64
	// Garbage counts invalid records and positions in the memory.
	Garbage uint64
}

// Errors of Open.
var (
	// ErrInUse: a link of this or another process has opened the port.
	ErrInUse = errors.New("the port is in use by another link")
	// ErrNoPort: no port of the cable has the address.
	ErrNoPort = errors.New("no port of the cable has this address")
	// errNotCable: the file is not that of a Cable.
	errNotCable = errors.New("the file is not a cable in shared memory")
)
