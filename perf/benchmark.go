package perf

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/verbs"
)

// Kind is what a benchmark measures.
type Kind string

// The kinds of benchmarks.
const (
	Lat      Kind = "lat"      // the time of one message at a time
	BW       Kind = "bw"       // the bandwidth of many messages
	MsgRate  Kind = "rate"     // the same of small messages, posted together
	Register Kind = "register" // the time to register and deregister memory
)

// Benchmark is a benchmark over verbs, like the programs of perftest: messages of one or several
// sizes. Zero values of the options have defaults, which are those of perftest where it has them.
type Benchmark struct {
	Kind  Kind   `json:"kind"`
	Verb  string `json:"verb,omitempty"` // one of Verbs; not for Register
	Sizes []int  `json:"sizes,omitempty"`
	// Repeat is how often every size is measured; 0 means once.
	Repeat int `json:"repeat,omitempty"`
	Load
}

// Verbs are the operations of benchmarks.
var Verbs = []string{"send", "write", "read", "fetch_add", "cmp_swap"}

// op returns the operation of the benchmark.
func (b *Benchmark) op() (verbs.WROpcode, error) {
	for op, name := range opNames {
		if name == b.Verb {
			return op, nil
		}
	}
	return 0, cli.Errorf("--verb %s: give %s", b.Verb, cli.Choices(Verbs))
}

// isAtomic reports whether the messages are atomics, which have 8 bytes.
func (b *Benchmark) isAtomic() bool { return b.Verb == "fetch_add" || b.Verb == "cmp_swap" }

// Limits of options.
const (
	maxSize       = 1 << 30
	maxIterations = 100_000_000
	maxQPs        = 4096
	maxDepth      = 16384
	maxRepeat     = 1000
)

// Normalize sets defaults, and returns an error that names the option that is wrong.
func (b *Benchmark) Normalize() error {
	b.Repeat, b.QPs = cmp.Or(b.Repeat, 1), cmp.Or(b.QPs, 1)
	if b.Kind != Register {
		b.Verb = cmp.Or(b.Verb, "send")
		if _, err := b.op(); err != nil {
			return err
		}
	}
	if len(b.Sizes) == 0 {
		b.Sizes = []int{map[Kind]int{Lat: wordBytes, BW: 64 << 10, MsgRate: 64, Register: 64 << 10}[b.Kind]}
		if b.isAtomic() {
			b.Sizes[0] = wordBytes
		}
	}
	if b.Kind == BW || b.Kind == MsgRate {
		b.setLoad()
	}
	for _, o := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"sizes", slices.Min(b.Sizes), 1, maxSize},
		{"sizes", slices.Max(b.Sizes), 1, maxSize},
		{"iterations", b.Iterations, 0, maxIterations},
		{"warmup", b.Warmup, 0, maxIterations},
		{"qps", b.QPs, 1, maxQPs},
		{"depth", b.Depth, 0, maxDepth},
		{"post-list", b.PostList, 0, maxDepth},
		{"cq-mod", b.Moderation, 0, max(b.Depth, 1)},
		{"inline", b.Inline, 0, 1 << 16},
		{"buffer", b.Buffer, 0, maxSize},
		{"repeat", b.Repeat, 1, maxRepeat},
	} {
		if o.value < o.least || o.value > o.most {
			return cli.Errorf("--%s %d: give %d to %d", o.name, o.value, o.least, o.most)
		}
	}
	if b.isAtomic() && (slices.Min(b.Sizes) != wordBytes || slices.Max(b.Sizes) != wordBytes) {
		return cli.Errorf("--sizes: atomics have 8 bytes")
	}
	return nil
}

// setLoad sets the defaults of streams: those of perftest. For rates, a quarter of the queue is
// posted and signaled together.
func (b *Benchmark) setLoad() {
	b.Depth = cmp.Or(b.Depth, 128)
	if b.Kind == MsgRate {
		b.PostList, b.Moderation = cmp.Or(b.PostList, max(1, b.Depth/4)), cmp.Or(b.Moderation, max(1, b.Depth/4))
	}
	b.PostList, b.Moderation = cmp.Or(b.PostList, 1), cmp.Or(b.Moderation, min(b.Depth, 100))
}

// iterations returns the number of messages of a size: that of the options, or else that of
// perftest, as far as they transfer no more than 64 MiB.
func (b *Benchmark) iterations(size int) int {
	switch {
	case b.Iterations > 0:
		return b.Iterations
	case b.Kind == BW || b.Kind == MsgRate:
		return min(max(64<<20/size/b.QPs, 32), 5000)
	}
	return min(max(64<<20/size, 32), 1000)
}

// Program returns the program that measures a size. Normalize must have been called.
func (b *Benchmark) Program(size int) (Program, error) {
	load := b.Load
	load.Iterations = b.iterations(size)
	if b.Kind == Register {
		return Program{Registration: &Registration{Bytes: size, Iterations: load.Iterations, Warmup: b.Warmup}}, nil
	}
	op, err := b.op()
	if err != nil {
		return Program{}, err
	}
	if b.Kind == Lat {
		return Program{Latency: &Latency{Op: op, Bytes: size, Load: load}}, nil
	}
	return Program{Stream: &Stream{Op: op, Bytes: size, Load: load}}, nil
}

// ParseSizes parses message sizes: numbers with K, M or G for powers of 1,024, separated by commas,
// and ranges such as 8..4M, of powers of two times the first.
func ParseSizes(text string) (sizes []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "..")
		low, err := parseSize(first)
		high := low
		if err == nil && isRange {
			high, err = parseSize(last)
		}
		if err != nil || high < low {
			return nil, cli.Errorf("--sizes %s: give sizes such as 64, 4K or 1M, separated by commas, or a range such as 8..4M", text)
		}
		for n := low; n <= high; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

// parseSize parses a size from 1 to maxSize.
func parseSize(text string) (int, error) {
	digits := strings.TrimRight(text, "KMGkmg")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[strings.ToUpper(text[len(digits):])]
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || !ok || n == 0 || n > maxSize>>shift {
		return 0, fmt.Errorf("%q is no size", text)
	}
	return int(n) << shift, nil
}
