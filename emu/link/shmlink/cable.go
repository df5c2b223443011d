package shmlink

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Create returns the file of a new cable, for processes to inherit and to open with Open. The file
// has no name: it disappears with its last descriptor and mapping.
func Create(c Config) (*os.File, error) {
	l, err := newLayout(&c)
	if err != nil {
		return nil, fmt.Errorf("shmlink: %w", err)
	}
	f, err := createFile(int64(l.size()))
	if err != nil {
		return nil, fmt.Errorf("shmlink: create a cable: %w", err)
	}
	mem, err := mapFile(f, l.dataAt())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("shmlink: create a cable: %w", err)
	}
	l.write(mem, c.Ports)
	unmap(mem)
	return f, nil
}

// Open opens the port that has the address of local, for datagrams to that address and UDP port. The
// link does not use f after Open.
func Open(f *os.File, local netip.AddrPort) (*Link, error) {
	l, err := open(f, func(ports [][]netip.Addr, _ bool) (int, error) {
		for i, addrs := range ports {
			if slices.Contains(addrs, local.Addr().Unmap()) {
				return i, nil
			}
		}
		return 0, ErrNoPort
	})
	if err != nil {
		return nil, fmt.Errorf("shmlink: open %v: %w", local, err)
	}
	l.local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	return l, nil
}

// OpenSwitch opens the port of a switch. Its Recv returns the datagrams that all ports send, with
// the number of the port in Tag. It passes them on with SendTo.
func OpenSwitch(f *os.File) (*Link, error) {
	l, err := open(f, func(ports [][]netip.Addr, hasSwitch bool) (int, error) {
		if !hasSwitch {
			return 0, ErrNoPort
		}
		return len(ports) - 1, nil
	})
	if err != nil {
		return nil, fmt.Errorf("shmlink: open the switch: %w", err)
	}
	l.isSwitch = true
	return l, nil
}

// open maps the memory of a cable, and opens and locks the port that find returns. The last port is
// that of the switch, if there is one.
func open(f *os.File, find func(ports [][]netip.Addr, hasSwitch bool) (int, error)) (*Link, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < pageBytes {
		return nil, errNotCable
	}
	mem, err := mapFile(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	m := newMapping(mem)
	lay, err := readLayout(mem, info.Size())
	if err != nil {
		return nil, err
	}
	ports := make([][]netip.Addr, lay.ports)
	for i := range ports {
		ports[i] = lay.readAddrs(mem, i)
	}
	port, err := find(ports, lay.hasSwitch)
	if err != nil {
		return nil, err
	}
	lock, err := lockPort(f, port)
	if err != nil {
		return nil, err
	}
	l := &Link{
		memory: m, lock: lock, mtu: lay.mtu, port: port, portOf: make(map[netip.Addr]int), gateway: noPort, lastPort: noPort,
		inPlace: maxMTU + 1, // no payload is so long: AllowInPlace has not been called
		states:  make([]sleepState, lay.ports), out: make([]producer, lay.ports), in: make([]consumer, lay.ports),
		buf: make([]byte, recvBytes),
	}
	if lay.hasSwitch && port != lay.ports-1 {
		l.gateway = lay.ports - 1
	}
	for i, addrs := range ports {
		for _, a := range addrs {
			l.portOf[a] = i
		}
		l.states[i].word = lay.state(mem, i)
		l.out[i], l.in[i] = newProducer(lay.ring(mem, port, i)), newConsumer(lay.ring(mem, i, port))
	}
	l.states[port].word.Store(awake)
	return l, nil
}

// mapping is mapped memory. It is unmapped when no link refers to it any more, since another
// goroutine may be in a method of a link that is closed.
type mapping struct{ mem []byte }

func newMapping(mem []byte) *mapping {
	m := &mapping{mem}
	runtime.AddCleanup(m, unmap, mem)
	return m
}

// Close closes the link and makes WaitReadable return. The port can be opened again.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return link.ErrClosed
	}
	l.Wake()
	l.lock.Close()
	return nil
}
