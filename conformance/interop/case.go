package interop

import (
	"errors"
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

// Side is one of the two devices, from the viewpoint of the caller.
type Side string

// The sides.
const (
	Ours   Side = "ours"
	Theirs Side = "theirs"
)

// other returns the other side.
func (s Side) other() Side {
	if s == Ours {
		return Theirs
	}
	return Ours
}

// ConnectMethod is how queue pairs are connected.
type ConnectMethod string

// The methods: ibv_modify_qp with attributes that the caller exchanges, or the connection
// manager, with either side connecting.
const (
	ByModify ConnectMethod = "hand"
	CMOurs   ConnectMethod = "cm-ours"
	CMTheirs ConnectMethod = "cm-theirs"
)

// connector returns the active side, which sends the connection request; empty for ByModify.
func (m ConnectMethod) connector() Side {
	switch m {
	case CMOurs:
		return Ours
	case CMTheirs:
		return Theirs
	}
	return ""
}

// Case is one operation between the devices.
type Case struct {
	Op     string // name of an operation
	By     Side   // the requester
	Method ConnectMethod
	Family Family
	Size   int
}

// Row is the name without the size. The cases of a row share a connection.
func (c Case) Row() string { return fmt.Sprintf("%s/%s/%s/%s", c.Op, c.By, c.Method, c.Family) }

// Name is operation/side/method/family/size.
func (c Case) Name() string { return fmt.Sprintf("%s/%d", c.Row(), c.Size) }

// Cases returns all cases for a transport, ordered by operation, side, method, family and size,
// including those that the devices do not support. packetBytes is the payload length of a packet:
// the path MTU for InfiniBand, that of a tagged DDP segment over IPv4 for iWARP. Some sizes of
// messages are just below and above it.
func Cases(transport verbs.Transport, packetBytes int) (cases []Case) {
	methods := []ConnectMethod{ByModify, CMOurs, CMTheirs}
	if transport == verbs.TransportIWARP {
		methods = methods[1:] // only the CM can connect TCP streams
	}
	for i := range operations {
		op := &operations[i]
		if transport == verbs.TransportIWARP && op.service != verbs.QPTypeRC {
			continue // iWARP has RC only
		}
		for _, by := range []Side{Ours, Theirs} {
			for _, method := range methods {
				if method != ByModify && op.service == verbs.QPTypeUC {
					continue // rdma_cm has no port space for UC
				}
				for _, family := range []Family{IPv4, IPv6} {
					for _, size := range op.sizesFor(transport, packetBytes, family) {
						cases = append(cases, Case{Op: op.name, By: by, Method: method, Family: family, Size: size})
					}
				}
			}
		}
	}
	return cases
}

// Additional bytes of IPv6 headers over IPv4 headers, and of untagged over tagged DDP headers.
const (
	ipv6Overhead     = 20
	untaggedOverhead = 4
)

// sizesFor returns the sizes of an operation over an address family. packetBytes is the payload of
// a packet; over iWARP, that of a tagged DDP segment over IPv4, and other segments carry less. Over
// iWARP, a send with immediate data has no payload (RFC 7306).
func (op *operation) sizesFor(transport verbs.Transport, packetBytes int, family Family) []int {
	if transport == verbs.TransportIWARP {
		if op.name == "send-imm" {
			return []int{0}
		}
		if family == IPv6 {
			packetBytes -= ipv6Overhead
		}
		if op.untagged {
			packetBytes -= untaggedOverhead
		}
	}
	return op.sizes(packetBytes)
}

// boundarySizes returns the smallest sizes, those around packetBytes, and two of many packets.
func boundarySizes(packetBytes int) []int {
	return []int{0, 1, packetBytes - 1, packetBytes, packetBytes + 1, 64 << 10, 1 << 20}
}

// boundarySizesUpTo returns a function that returns those boundarySizes that limit allows.
func boundarySizesUpTo(limit func(packetBytes int) int) func(packetBytes int) []int {
	return func(packetBytes int) []int {
		return slices.DeleteFunc(boundarySizes(packetBytes), func(n int) bool { return n > limit(packetBytes) })
	}
}

// fixedSizes returns a function that returns sizes, whatever the payload length of a packet is.
func fixedSizes(sizes ...int) func(int) []int { return func(int) []int { return sizes } }

// Matching returns the cases whose names match pattern, as in path.Match. A pattern with
// fewer parts matches all names that begin with it.
func Matching(cases []Case, pattern string) ([]Case, error) {
	matching, err := conformance.MatchingNames(cases, pattern)
	if err == nil && len(matching) == 0 {
		err = fmt.Errorf("no exchange matches %q; names are operation/side/method/family/size, like %s", pattern, cases[0].Name())
	}
	return matching, err
}

// operation is an operation that cases use.
type operation struct {
	name    string
	service verbs.QPType
	// Both sides need the capabilities needs, and the responder also responderNeeds.
	needs, responderNeeds verbs.Caps
	sizes                 func(packet int) []int
	untagged              bool // over iWARP: an untagged message
	usesSRQ               bool // the responder uses a shared receive queue
	inline                int  // inline data in octets
	run                   func(*exchange)
}

const (
	maxInline = 64
	// maxUnreliable is the longest unacknowledged message: most still arrive at a loss of 5 %.
	maxUnreliable = 64 << 10
)

// windowSizes are sizes below and above a packet.
var windowSizes = []int{64, 5000}

// operations are all operations. RC has most, UC and UD some.
var operations = defaultToRC([]operation{
	{name: "send", sizes: boundarySizes, untagged: true, run: send},
	{name: "send-imm", sizes: boundarySizes, untagged: true, run: sendImm},
	{name: "send-inv", needs: verbs.CapSendInv, sizes: fixedSizes(0, 64), untagged: true, run: sendInvalidate},
	{name: "send-inline", sizes: fixedSizes(0, 1, maxInline), untagged: true, inline: maxInline, run: send},
	{name: "send-srq", responderNeeds: verbs.CapSRQ, sizes: boundarySizes, untagged: true, usesSRQ: true, run: send},
	{name: "send-many", sizes: fixedSizes(1, 5000), untagged: true, run: sendMany},
	{name: "write", sizes: boundarySizes, run: write},
	{name: "write-imm", sizes: boundarySizes, run: writeImm},
	{name: "write-inline", sizes: fixedSizes(0, 1, maxInline), inline: maxInline, run: write},
	{name: "read", sizes: boundarySizes, run: read},
	{name: "read-many", sizes: fixedSizes(1, 5000), run: readMany},
	{name: "compare-swap", needs: verbs.CapAtomics, sizes: fixedSizes(8), run: compareSwap},
	{name: "fetch-add", needs: verbs.CapAtomics, sizes: fixedSizes(8), run: fetchAdd},
	{name: "atomic-write", needs: verbs.CapAtomicWrite, sizes: fixedSizes(8), run: atomicWrite},
	{name: "flush", needs: verbs.CapFlush, sizes: fixedSizes(1, 5000), run: flush},
	{name: "window-1", responderNeeds: verbs.CapMWType1, sizes: fixedSizes(windowSizes...), run: windowType1},
	{name: "window-2", responderNeeds: verbs.CapMWType2 | verbs.CapLocalInv, sizes: fixedSizes(windowSizes...), run: windowType2},
	{name: "refused", sizes: fixedSizes(64), run: refused},
	{name: "uc-send", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: boundarySizesUpTo(func(int) int { return maxUnreliable }), run: send},
	{name: "uc-write-imm", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: boundarySizesUpTo(func(int) int { return maxUnreliable }), run: writeImm},
	{name: "ud-send", service: verbs.QPTypeUD, needs: verbs.CapUD, sizes: boundarySizesUpTo(func(packetBytes int) int { return packetBytes }), run: datagram},
})

// defaultToRC makes RC the service of operations without one, which then need the capability CapRC.
func defaultToRC(all []operation) []operation {
	for i := range all {
		if op := &all[i]; op.service == 0 {
			op.service, op.needs = verbs.QPTypeRC, op.needs|verbs.CapRC
		}
	}
	return all
}

// findOperation returns the operation called name.
func findOperation(name string) (*operation, error) {
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == name })
	if i < 0 {
		return nil, errors.New("no operation " + name)
	}
	return &operations[i], nil
}
