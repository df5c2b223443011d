package explore

import (
	"maps"
	"slices"
	"testing"
)

// lossy is a machine of a network with two packets in each of two directions.
type lossy struct {
	Network
	arrived []string
	ends    map[string]int // number of runs that end with these arrivals
}

func (l *lossy) Take(s Step) error {
	if p := l.Network.Take(s); p != nil {
		l.arrived = append(l.arrived, string(p.Bytes))
	}
	return nil
}

func (l *lossy) Check() error { return nil }

func (l *lossy) Fingerprint() [16]byte {
	var d Digest
	return d.Sum(l.Network, l.arrived)
}

func (l *lossy) Finish() error {
	text := ""
	for _, a := range l.arrived {
		text += a
	}
	l.ends[text]++
	return nil
}

// arrivals returns the orders in which packets arrive that send sends.
func arrivals(t *testing.T, faults int, send func(*Network)) []string {
	ends := map[string]int{}
	explored(t, Options{Parallel: 1}, func() Machine {
		l := &lossy{Network: Network{Faults: faults}, ends: ends}
		send(&l.Network)
		return l
	})
	return slices.Sorted(maps.Keys(ends))
}

func TestNetworkArrivals(t *testing.T) {
	oneWay := func(n *Network) {
		n.Send(0, 1, []byte("a"))
		n.Send(0, 1, []byte("b"))
	}
	if got, want := arrivals(t, 0, oneWay), []string{"ab"}; !slices.Equal(got, want) {
		t.Errorf("without faults %q arrive, want %q", got, want)
	}
	if got, want := arrivals(t, 1, oneWay), []string{"a", "aab", "ab", "aba", "abb", "b", "ba"}; !slices.Equal(got, want) {
		t.Errorf("with a fault %q arrive, want %q", got, want)
	}
	bothWays := func(n *Network) {
		oneWay(n)
		n.Send(1, 0, []byte("x"))
	}
	if got, want := arrivals(t, 0, bothWays), []string{"abx", "axb", "xab"}; !slices.Equal(got, want) {
		t.Errorf("in two directions %q arrive, want %q", got, want)
	}
}
