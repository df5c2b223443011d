package layers

// pureStd is the part of the standard library that neither looks at the world
// nor keeps state between calls. Add to it what is like that; what is not
// belongs to whoever drives the engine.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "iter",
	"maps", "math", "math/bits", "net/netip", "reflect", "slices", "sort", "strconv", "strings", "time",
}

// impure says what is wrong with the imports that an engine would reach for.
var impure = map[string]string{
	"net/...":                 "engines do no I/O; an address is a net/netip value, and packets come and go as arguments",
	"os/...":                  "engines do no I/O and read no environment",
	"syscall":                 "engines do no I/O",
	"log/...":                 "engines do no I/O; what happened is returned, or counted",
	"sync/...":                "an engine has one owner and needs no lock; whoever shares it locks around it",
	"context":                 "nothing in an engine waits, so nothing can be cancelled",
	"math/rand/...":           "choices come from the driver's seed, as arguments",
	"crypto/rand":             "choices come from the driver's seed, as arguments",
	"hash/maphash":            "its seed differs from run to run",
	"runtime/...":             "an engine behaves the same whatever runs beside it",
	"testing/...":             "tests belong in _test.go files",
	"github.com/...":          "engines import nothing from outside this module",
	"golang.org/...":          "engines import nothing from outside this module",
	"./emu/link/...":          "a link that touches a device is the driver's; of ./emu/link engines use the value types only",
	"./emu/sim":               "the engine is driven by the world and does not know it",
	"./emu/impair":            "what happens to a packet on its way is the link's affair",
	"./emu/softroce":          "the provider drives the engine, not the other way round",
	"./emu/softiwarp":         "the provider drives the engine, not the other way round",
	"./emu/dgiwarp":           "the provider drives the engine, not the other way round",
	"./emu/internal/device":   "the handles of programs know the engine, not the other way round",
	"./emu/internal/drive":    "the driver knows the engine, not the other way round",
	"./emu/internal/simdrive": "the driver knows the engine, not the other way round",
}

// engines are the protocol machines and what they are made of.
var engines = []string{
	"./emu/mono",
	"./emu/link",
	"./emu/internal/...",
	"./emu/softroce/wire",
	"./emu/softroce/mad",
	"./emu/softroce/engine",
	"./emu/softroce/cm",
	"./emu/softroce/flaw",
	"./emu/softiwarp/wire",
	"./emu/softiwarp/mpa",
	"./emu/softiwarp/engine",
	"./emu/softiwarp/flaw",
	"./emu/dgiwarp/wire",
	"./emu/dgiwarp/rd",
	"./emu/dgiwarp/engine",
	"./emu/dgiwarp/flaw",
	"./mpi/match",
	"./mpi/wire",
	"./mpi/p2p",
	"./mpi/reuse",
	"./mpi/window",
}

// drivers are the exceptions among them: they bring time and goroutines, or call
// what does.
var drivers = []string{"./emu/internal/drive", "./emu/internal/simdrive", "./emu/internal/device"}

// seeded are the parts of a simulated world besides engines.
var seeded = []string{"./emu/sim", "./emu/impair", "./emu/internal/simdrive"}

// Rules is the architecture of this module.
func Rules() RuleSet {
	return RuleSet{
		Boundaries: boundaries(),
		Purities: []Purity{
			{
				Name: "engines are pure", From: engines, Except: drivers, Bans: BanAll,
				Why: "an engine is a value: now, work and packets in; packets, completions and the next deadline out",
			},
			{
				Name: "one seed, one run", From: seeded,
				Bans: BanClock | BanMapOrder | BanChance | BanGlobals | BanVariants,
				Why:  "the same seed must give the same run, byte for byte, on every machine",
			},
		},
		Cgo: CgoRule{
			In:  []string{"./verbs/ibv"},
			Why: "CGO_ENABLED=0 go build ./... must work; only ./verbs/ibv speaks to C",
		},
	}
}

func boundaries() []Boundary {
	return []Boundary{
		{
			Name: "verbs stands alone", From: []string{"./verbs/..."}, Only: []string{"std", "./verbs/..."}, Tests: true,
			Why: "the API that programs are written against knows no implementation and drags nothing in",
		},
		{
			Name: "the agent knows verbs only", From: []string{"./agent"}, Only: []string{"std", "./verbs", "./agent", "./internal/regularfile", "./internal/testparallel"}, Tests: true,
			Why: "it runs beside devices of any kind, and carries what a program asks of them",
		},
		{
			Name: "codecs stand alone", From: []string{"./emu/softroce/wire", "./emu/softroce/mad", "./emu/softiwarp/wire", "./emu/dgiwarp/wire"},
			Only: append([]string{"./emu/softroce/wire", "./emu/softiwarp/wire"}, pureStd...),
			Why:  "a wire format is bytes and numbers; whoever needs it must not drag a stack in", Because: impure,
		},
		{
			Name: "engines are pure", From: engines, Except: drivers, Through: true,
			Only: append([]string{
				"./verbs", "./emu/mono", "./emu/link", "./emu/internal/...",
				"./emu/softroce/wire", "./emu/softroce/mad",
				"./emu/softiwarp/wire", "./emu/softiwarp/mpa", "./emu/dgiwarp/wire", "./emu/dgiwarp/rd",
				"./mpi/match", "./mpi/wire", "./mpi/p2p",
			}, pureStd...),
			Never: drivers,
			Why:   "an engine uses pure packages only (pureStd lists those of the standard library)", Because: impure,
		},
		{
			Name: "one seed, one run", From: seeded,
			Never: []string{"net", "os/...", "context", "crypto/rand", "hash/maphash", "runtime"},
			Why:   "a simulated world asks the machine for nothing: all it does follows from its seed",
		},
		{
			Name: "programs know verbs only", From: []string{"./mpi/...", "./perf/...", "./scenarios", "./scenarios/traffic", "./scenarios/workload"}, Through: true,
			Except: []string{"./perf/peers/..."}, // commands, which bring their devices
			Never:  []string{"./emu/..."},
			Why:    "what is written over verbs must run on a NIC as on the emulator; a test or cmd/fabrictest brings the device",
		},
		{
			Name: "the judge is independent", From: []string{"./conformance/..."}, Through: true,
			Never: []string{"./emu/..."},
			Why:   "a judge that shares code with the judged shares its errors; a device arrives as a verbs.Provider",
		},
		{
			Name: "the judge reads packets itself", From: []string{"./conformance/packet/..."}, Tests: true, Only: []string{"std", "./conformance/packet/..."},
			Why: "the judge's packet model is written from the specification alone",
		},
		{
			Name: "the emulator knows no user", From: []string{"./emu/..."}, Through: true,
			Never: []string{"./conformance/...", "./mpi/...", "./perf/...", "./scenarios/...", "./lab/...", "./launch/...", "./report/...", "./capture/...", "./cmd/..."},
			Why:   "the emulator is used by these and must not behave differently for one of them",
		},
		{
			Name: "topology knows no protocol", From: []string{"./netns/..."}, Tests: true,
			Only: []string{"std", "./netns/...", "./internal/testparallel", "github.com/...", "golang.org/..."},
			Why:  "namespaces, links and switches carry any packet; netns imports no other package of this module, except internal/testparallel in its tests",
		},
		{
			Name: "the launcher knows no RDMA", From: []string{"./launch/..."},
			Only: []string{"std", "./launch/...", "golang.org/..."},
			Why:  "what starts processes and carries their messages serves any program, on any device",
		},
		{
			Name: "a report is only told", From: []string{"./report/..."}, Through: true,
			Never: []string{"./emu/...", "./lab/...", "./scenarios/...", "./launch/...", "./netns"},
			Why:   "results are read where nothing can be run; whoever ran the scenarios fills them in (of netns only the drawing, ./netns/topology)",
		},
		{
			Name: "Ginkgo where suites are shared", From: []string{"./..."}, Except: []string{"./conformance/...", "./netns/...", "./e2e/..."}, Tests: true,
			Never: []string{"github.com/onsi/ginkgo/...", "github.com/onsi/gomega/..."},
			Why:   "codecs, engines and tools use plain testing (docs/decisions/0003-ginkgo-where-suites-are-shared.md)",
		},
	}
}
