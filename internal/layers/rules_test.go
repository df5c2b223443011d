package main

import "slices"

// pureStd are the packages of the standard library without I/O and global state.
// Engines may import only these.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "iter",
	"maps", "math", "math/bits", "net/netip", "reflect", "slices", "sort", "strconv", "strings", "time",
}

// impureReasons are the reasons why engines must not import some packages.
var impureReasons = map[string]string{
	"net/...":               "engines do no I/O; an address is a net/netip value, and packets come and go as arguments",
	"os/...":                "engines do no I/O and read no environment",
	"syscall":               "engines do no I/O",
	"log/...":               "engines do no I/O; what happened is returned, or counted",
	"sync/...":              "an engine has one owner and needs no lock; its caller locks if it is shared",
	"context":               "engines do not block, so there is nothing to cancel",
	"math/rand/...":         "random numbers come from the driver's seed, as arguments",
	"crypto/rand":           "random numbers come from the driver's seed, as arguments",
	"hash/maphash":          "its seed differs from run to run",
	"runtime/...":           "an engine must not depend on the runtime environment",
	"testing/...":           "tests belong in _test.go files",
	"github.com/...":        "engines import nothing from outside this module",
	"golang.org/...":        "engines import nothing from outside this module",
	"./emu/link/...":        "a link that touches a device is the driver's; of ./emu/link engines use the value types only",
	"./emu/sim":             "the simulator drives the engine, not the other way round",
	"./emu/impair":          "impairments belong to the link",
	"./emu/softroce":        "the provider drives the engine, not the other way round",
	"./emu/softiwarp":       "the provider drives the engine, not the other way round",
	"./emu/dgiwarp":         "the provider drives the engine, not the other way round",
	"./emu/internal/device": "verbs objects call the engine, not the other way round",
	"./emu/internal/drive":  "the driver knows the engine, not the other way round",
}

// engines are the protocol state machines and the packages that they use.
var engines = []string{
	"./emu/mono",
	"./emu/link",
	"./emu/internal/...",
	"./emu/iwarp/...",
	"./emu/softroce/wire",
	"./emu/softroce/engine",
	"./emu/softroce/cm",
	"./emu/softiwarp/mpa",
	"./emu/softiwarp/engine",
	"./emu/dgiwarp/wire",
	"./emu/dgiwarp/rd",
	"./emu/dgiwarp/engine",
	"./mpi/wire",
	"./mpi/p2p",
	"./mpi/window",
	"./mpi/coll",
	"./mpi/datatype",
}

// wireEdges make the packets of an engine defective.
var wireEdges = []string{"./emu/defects/rocewire"}

// pureImports are the packages that engines may import.
var pureImports = append([]string{
	"./verbs", "./emu/mono", "./emu/link", "./emu/internal/...",
	"./emu/softroce/wire",
	"./emu/iwarp/...", "./emu/softiwarp/mpa", "./emu/dgiwarp/wire", "./emu/dgiwarp/rd",
	"./mpi/wire", "./mpi/p2p", "./mpi/window",
}, pureStd...)

// drivers are packages under engines that may use time and goroutines.
var drivers = []string{"./emu/internal/drive", "./emu/internal/device"}

// deterministic are the packages of the simulator besides engines.
var deterministic = []string{"./emu/sim", "./emu/impair"}

// Rules returns the rules of this module.
func Rules() RuleSet {
	return RuleSet{
		Boundaries: boundaries(),
		Purities: []Purity{
			{
				Name: "engines are pure", From: slices.Concat(engines, wireEdges, []string{"./mpi/racecheck"}), Except: drivers, Bans: BanAll,
				Why: "an engine is a value: now, work and packets in; packets, completions and the next deadline out",
			},
			{
				Name: "one seed, one run", From: deterministic,
				Bans: BanClock | BanMapOrder | BanGlobalRand | BanGlobals | BanPlatformFiles,
				Why:  "the same seed must give the same run, byte for byte, on every machine",
			},
		},
		Cgo: CgoRule{
			In:  []string{"./verbs/ibv"},
			Why: "CGO_ENABLED=0 go build ./... must work; only ./verbs/ibv uses C",
		},
	}
}

func boundaries() []Boundary {
	return []Boundary{
		{
			Name: "verbs stands alone", From: []string{"./verbs/..."}, Only: []string{"std", "./verbs/...", "./internal/must"}, Tests: true,
			Why: "the API must not depend on an implementation or on other modules",
		},
		{
			Name: "the agent knows verbs only", From: []string{"./agent"}, Only: []string{"std", "./verbs", "./agent", "./control", "./internal/cli", "./internal/must", "./internal/testutil"}, Tests: true,
			Why: "the agent forwards verbs calls to devices of any kind",
		},
		{
			Name: "codecs stand alone", From: []string{"./emu/softroce/wire", "./emu/iwarp/wire", "./emu/dgiwarp/wire"},
			Only: append([]string{"./emu/softroce/wire", "./emu/iwarp/wire"}, pureStd...),
			Why:  "a user of a wire format must not depend on a protocol stack", Because: impureReasons,
		},
		{
			Name: "shared layers know no provider", From: []string{"./emu/iwarp/...", "./emu/internal/..."}, Through: true, Tests: true,
			Never: []string{"./emu/softroce/...", "./emu/softiwarp/...", "./emu/dgiwarp/..."},
			Why:   "providers share DDP, RDMAP, memory, queues and drivers; these must not differ for one of them",
		},
		{
			Name: "datagram-iWARP does not use soft-iWARP", From: []string{"./emu/dgiwarp/..."}, Through: true,
			Never: []string{"./emu/softiwarp/..."},
			Why:   "what the iWARP providers share is in ./emu/iwarp",
		},
		{
			Name: "engines are pure", From: engines, Except: drivers, Through: true,
			Only: pureImports, Never: drivers,
			Why: "an engine uses pure packages only (pureStd lists those of the standard library)", Because: impureReasons,
		},
		{
			Name: "defects at the wire are pure", From: wireEdges, Through: true,
			Only: pureImports, Never: drivers,
			Why: "a run with a defective NIC must be reproducible from its seed", Because: impureReasons,
		},
		{
			Name: "one seed, one run", From: deterministic,
			Never: []string{"net", "os/...", "context", "crypto/rand", "hash/maphash", "runtime"},
			Why:   "a simulation depends only on its seed, not on the machine",
		},
		{
			Name: "exploration knows no subject", From: []string{"./explore"}, Only: []string{"std", "./explore", "./internal/must"}, Tests: true,
			Why: "users import it in tests of their own machines and programs",
		},
		{
			Name: "checkers of programs are pure", From: []string{"./mpi/misuse", "./mpi/racecheck"}, Only: slices.Concat(pureImports, []string{"./explore"}),
			Why: "its findings depend only on the calls of the ranks", Because: impureReasons,
		},
		{
			Name: "traffic knows verbs only", From: []string{"./traffic"}, Only: []string{"std", "./verbs"},
			Why: "what programs over verbs share must not depend on one of them, or on a device",
		},
		{
			Name: "programs know verbs only", From: []string{"./mpi/...", "./perf/...", "./scenarios", "./scenarios/random", "./scenarios/workload"}, Through: true,
			Except: []string{"./perf/peers/..."}, // commands, which open devices
			Never:  []string{"./emu/..."},
			Why:    "programs over verbs must run on a NIC as on the emulator; a test or cmd/fabrictest passes the device",
		},
		{
			Name: "the judge is independent", From: []string{"./conformance/..."}, Through: true,
			Never: []string{"./emu/...", "./lab/..."},
			Why:   "conformance tests that share code with the device share its errors; the device is a verbs.Provider",
		},
		{
			Name: "the judge reads packets itself", From: []string{"./conformance/packet/..."}, Tests: true, Only: []string{"std", "./conformance/packet/...", "./internal/testutil"},
			Why: "the packet model of conformance tests is written from the specification alone",
		},
		{
			Name: "reference models are pure", From: []string{"./conformance/model"},
			Only: append([]string{"./conformance/packet", "./conformance/packet/...", "./verbs"}, pureStd...),
			Why:  "a model says what a correct device may do, from packets and work requests alone", Because: impureReasons,
		},
		{
			Name: "the emulator knows no user", From: []string{"./emu/..."}, Through: true,
			Never: []string{"./conformance/...", "./mpi/...", "./perf/...", "./traffic", "./scenarios/...", "./lab/...", "./control", "./launch/...", "./netns/...", "./report/...", "./capture/...", "./cmd/..."},
			Why:   "the emulator is used by these and must not behave differently for one of them",
		},
		{
			Name: "topology knows no protocol", From: []string{"./netns/..."}, Tests: true,
			Only: []string{"std", "./netns/...", "./internal/must", "./internal/testutil", "github.com/...", "golang.org/..."},
			Why:  "namespaces, links and switches carry any packet; netns imports no other package of this module, except internal/must and internal/testutil in its tests",
		},
		{
			Name: "control carries any message", From: []string{"./control"}, Only: []string{"std", "./internal/must"}, Tests: true,
			Why: "the protocol between processes knows no message of its users",
		},
		{
			Name: "the launcher knows no RDMA", From: []string{"./launch/..."},
			Only: []string{"std", "./control", "./internal/process", "./launch/...", "golang.org/..."},
			Why:  "the launcher serves any program, on any device",
		},
		{
			Name: "reports run no scenario", From: []string{"./report/..."}, Through: true,
			Never: []string{"./emu/...", "./lab/...", "./scenarios/...", "./launch/...", "./mpi/...", "./netns"},
			Why:   "reports are read on machines that cannot run scenarios; labs fill in the results (of netns only ./netns/topology is used, for drawings)",
		},
		{
			Name: "Ginkgo where suites are shared", From: []string{"./..."}, Except: []string{"./conformance/...", "./netns/...", "./e2e/..."}, Tests: true,
			Never: []string{"github.com/onsi/ginkgo/...", "github.com/onsi/gomega/..."},
			Why:   "codecs, engines and tools use plain testing (docs/decisions/0003-ginkgo-where-suites-are-shared.md)",
		},
		{
			Name: "Gomega end to end only", From: []string{"./..."}, Except: []string{"./e2e/..."}, Tests: true,
			Never: []string{"github.com/onsi/gomega/..."},
			Why:   "its matchers import 34 packages that nothing else needs, and go test ./... would compile and link them; ginkgo.Fail is enough",
		},
	}
}
