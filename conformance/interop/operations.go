package interop

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// operation is one of those that are exchanged.
type operation struct {
	name    string
	service verbs.QPType
	// needs are what both ends have to be able to, and serves what the one that is asked
	// has to besides.
	needs, serves verbs.Caps
	sizes         func(packet int) []int
	untagged      bool // over iWARP: a message that is not placed by its sender
	shared        bool // the receives of the end that is asked
	inline        int  // octets that the request carries itself
	run           func(*exchange) error
}

const (
	maxInline = 64
	// A message of many packets without acknowledgements, and one that passes where one
	// packet in twenty is lost, often enough.
	maxUnreliable = 64 << 10
)

// windowSizes are less than a packet, and more.
var windowSizes = []int{64, 5000}

// operations are all of them. RC has them all, UC and UD those that they can.
var operations = mostlyRC([]operation{
	{name: "send", sizes: around, untagged: true, run: send},
	{name: "send-imm", sizes: around, untagged: true, run: sendImm},
	{name: "send-inv", needs: verbs.CapSendInv, sizes: only(0, 64), untagged: true, run: sendInvalidate},
	{name: "send-inline", sizes: only(0, 1, maxInline), untagged: true, inline: maxInline, run: send},
	{name: "send-srq", serves: verbs.CapSRQ, sizes: around, untagged: true, shared: true, run: send},
	{name: "send-many", sizes: only(1, 5000), untagged: true, run: sendMany},
	{name: "write", sizes: around, run: write},
	{name: "write-imm", sizes: around, run: writeImm},
	{name: "write-inline", sizes: only(0, 1, maxInline), inline: maxInline, run: write},
	{name: "read", sizes: around, run: read},
	{name: "read-many", sizes: only(1, 5000), run: readMany},
	{name: "compare-swap", needs: verbs.CapAtomics, sizes: only(8), run: compareSwap},
	{name: "fetch-add", needs: verbs.CapAtomics, sizes: only(8), run: fetchAdd},
	{name: "atomic-write", needs: verbs.CapAtomicWrite, sizes: only(8), run: atomicWrite},
	{name: "flush", needs: verbs.CapFlush, sizes: only(1, 5000), run: flush},
	{name: "window-1", serves: verbs.CapMWType1, sizes: only(windowSizes...), run: windowOne},
	{name: "window-2", serves: verbs.CapMWType2 | verbs.CapLocalInv, sizes: only(windowSizes...), run: windowTwo},
	{name: "refused", sizes: only(64), run: refused},
	{name: "uc-send", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: upTo(func(int) int { return maxUnreliable }), run: unreliable(false)},
	{name: "uc-write-imm", service: verbs.QPTypeUC, needs: verbs.CapUC, sizes: upTo(func(int) int { return maxUnreliable }), run: unreliable(true)},
	{name: "ud-send", service: verbs.QPTypeUD, needs: verbs.CapUD, sizes: upTo(func(packet int) int { return packet }), run: datagram},
})

// mostlyRC has the operations that name no service be those of RC.
func mostlyRC(all []operation) []operation {
	for i := range all {
		if op := &all[i]; op.service == 0 {
			op.service, op.needs = verbs.QPTypeRC, op.needs|verbs.CapRC
		}
	}
	return all
}

// sizesOf are the sizes of an operation. Immediate data is a message of its own over
// iWARP (RFC 7306), which no other message can carry.
func (op *operation) sizesOf(transport verbs.Transport, packet int) []int {
	if transport == verbs.TransportIWARP && op.name == "send-imm" {
		return []int{0}
	}
	return op.sizes(packet)
}

func find(name string) (*operation, error) {
	for i := range operations {
		if operations[i].name == name {
			return &operations[i], nil
		}
	}
	return nil, errors.New("no operation " + name)
}
