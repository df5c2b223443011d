package interop

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Family is an address family.
type Family string

// The address families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Side is one of the two ends, as whoever runs the suite sees them.
type Side string

// The ends.
const (
	Ours   Side = "ours"
	Theirs Side = "theirs"
)

func (w Side) other() Side {
	if w == Ours {
		return Theirs
	}
	return Ours
}

// ConnectMethod is how queue pairs are connected.
type ConnectMethod string

// The ways: numbers that the two ends exchange by hand, or the connection manager, with
// either end connecting and the other accepting.
const (
	ByModify ConnectMethod = "hand"
	CMOurs   ConnectMethod = "cm-ours"
	CMTheirs ConnectMethod = "cm-theirs"
)

// connector is who connects; nobody if it is done by hand.
func (w ConnectMethod) connector() Side {
	switch w {
	case CMOurs:
		return Ours
	case CMTheirs:
		return Theirs
	}
	return ""
}

// Case is one exchange.
type Case struct {
	Op     string // see Operations
	By     Side   // who asks for it
	Method ConnectMethod
	Family Family
	Size   int
}

// Row names what the sizes of a case have in common: they share a connection.
func (c Case) Row() string { return fmt.Sprintf("%s/%s/%s/%s", c.Op, c.By, c.Method, c.Family) }

// Name names the case: operation/who/way/family/size.
func (c Case) Name() string { return fmt.Sprintf("%s/%d", c.Row(), c.Size) }

// Operations are the names of all.
func Operations() (names []string) {
	for i := range operations {
		names = append(names, operations[i].name)
	}
	return names
}

// Cases are all exchanges between devices of a transport, row by row, also those that
// the devices cannot have. The sizes are around a packet's, which for InfiniBand is the
// path MTU in octets, and for iWARP what a segment of TCP has room for over IPv4.
func Cases(transport verbs.Transport, packet int) (cases []Case) {
	ways := []ConnectMethod{ByModify, CMOurs, CMTheirs}
	if transport == verbs.TransportIWARP {
		ways = ways[1:] // a connection is TCP's
	}
	for i := range operations {
		op := &operations[i]
		if transport == verbs.TransportIWARP && op.service != verbs.QPTypeRC {
			continue // it has connections only
		}
		for _, by := range []Side{Ours, Theirs} {
			for _, way := range ways {
				if way != ByModify && op.service == verbs.QPTypeUC {
					continue // rdma_cm has no port space for it
				}
				for _, family := range []Family{IPv4, IPv6} {
					for _, size := range op.sizesOf(transport, packetOf(transport, packet, op, family)) {
						cases = append(cases, Case{Op: op.name, By: by, Method: way, Family: family, Size: size})
					}
				}
			}
		}
	}
	return cases
}

// What IPv6 takes of a segment more than IPv4, and what an untagged segment's header
// does more than a tagged one's.
const (
	moreOfIPv6     = 20
	moreOfUntagged = 4
)

func packetOf(transport verbs.Transport, packet int, op *operation, family Family) int {
	if transport != verbs.TransportIWARP {
		return packet
	}
	if family == IPv6 {
		packet -= moreOfIPv6
	}
	if op.untagged {
		packet -= moreOfUntagged
	}
	return packet
}

// around are the sizes at which something may go wrong.
func around(packet int) []int { return []int{0, 1, packet - 1, packet, packet + 1, 64 << 10, 1 << 20} }

// upTo leaves out what is larger.
func upTo(most func(packet int) int) func(int) []int {
	return func(packet int) []int {
		return slices.DeleteFunc(around(packet), func(n int) bool { return n > most(packet) })
	}
}

// only are sizes that do not depend on the packet's.
func only(sizes ...int) func(int) []int { return func(int) []int { return sizes } }

// Matching returns the cases whose name matches pattern as path.Match does, where a
// pattern of fewer parts matches all that begins with it.
func Matching(cases []Case, pattern string) ([]Case, error) {
	matching, err := conformance.MatchingNames(cases, pattern)
	if err == nil && len(matching) == 0 {
		err = fmt.Errorf("no exchange matches %q; they are named operation/who/way/family/size, like %s", pattern, cases[0].Name())
	}
	return matching, err
}
