package work_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs"
)

// rankCommand makes the test binary a rank of the workload that the next argument names.
const rankCommand = "test-rank"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == rankCommand {
		mpi.Main(func(w *mpi.World) error { return runRank(w, os.Args[2]) })
	}
	if len(os.Args) > 3 && os.Args[1] == faultRankCommand {
		if err := runFaultRank(fault(os.Args[2]), os.Args[3]); err != nil {
			os.Exit(1) // the launcher reports the error
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == mpirun.ProcessCommand {
		code, err := mpirun.ProcessMain()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	testutil.SetParallel(4) // some wait for a peer that never answers
	debug.SetGCPercent(400) // hundreds of small worlds are created and become garbage
	os.Exit(m.Run())
}

func runRank(w *mpi.World, name string) error {
	wl, err := work.Find(name)
	if err != nil {
		return err
	}
	r, err := wl.Run(w, work.Params{})
	if err == nil && (r.Checks == 0 || r.Verified == 0) {
		err = errors.New("nothing was checked")
	}
	return err
}

// setting is the configuration of a run with a process per rank.
type setting struct {
	work     *work.Workload
	provider string
	design   carrier.Design
	protocol p2p.Protocol
	progress mpi.ProgressMode
	ranks    int
	perHost  int // 1 or 2
	rails    int // 1 or 2
	eager    int
	lossPPM  uint32
	choices  coll.Choices
}

func (s *setting) String() string {
	return fmt.Sprintf("%s/%s-%s-%v-%v-%d ranks-%d a host-%d rails-eager %d-loss %d", s.work.Name, s.provider, s.design, s.protocol, s.progress,
		s.ranks, s.perHost, s.rails, s.eager, s.lossPPM)
}

// settings returns every workload on every provider and design. The other properties
// alternate.
func settings() (all []setting) {
	for _, p := range nics.All() {
		designs := designsOf(p)
		if !p.Caps.Has(verbs.CapRC) { // only UD, once for each protocol
			designs = []carrier.Design{carrier.UD, carrier.UD, carrier.UD}
		}
		for d, design := range designs {
			for i, wl := range work.All() {
				k := d + i
				s := setting{
					work: wl, provider: p.Name, design: design, protocol: []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[k%3],
					progress: []mpi.ProgressMode{mpi.Polling, mpi.Background}[k/3%2],
					ranks:    4, perHost: 1 + k/2%2, rails: 1 + k/5%2, eager: []int{0, 512, -1}[k/4%3],
				}
				if k%7 == 3 {
					s.lossPPM = 1000
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// Workloads verify with a process per rank, in real time, where ranks and NICs run
// concurrently. Without -everywhere or -part, selectSettings limits them.
func TestWorkloadsVerifyInNamespaces(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	all := settings()
	if subsetOnly() {
		all = selectSettings(all)
	}
	for i, s := range all {
		if !part.Has(i) {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			result, err := mpirun.InNamespaces(t.Context(), s.run(rankCommand, s.work.Name))
			if err != nil || result.Code != 0 {
				t.Errorf("%v, exit code %d\nTo repeat it:\n\n    go test ./mpi/work -everywhere -run '%s'\n", err, result.Code, t.Name())
			}
		})
	}
}

// Broadcasts and barriers that multicast verify in namespaces, with loss and with several ranks on a host.
func TestMulticastVerifiesInNamespaces(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	for _, s := range []setting{
		{work: must.Get(work.Find("collective"))(t), design: carrier.RingSRQ, perHost: 1},
		{work: must.Get(work.Find("hpl"))(t), design: carrier.UD, perHost: 2, lossPPM: 10_000},
	} {
		s.provider, s.ranks, s.rails = "softroce", 4, 1
		must.Do(t, s.choices.UnmarshalText([]byte("bcast=multicast,barrier=multicast")))
		result, err := mpirun.InNamespaces(t.Context(), s.run(rankCommand, s.work.Name))
		if err != nil || result.Code != 0 {
			t.Errorf("%v: %v, exit code %d", &s, err, result.Code)
		}
	}
}

// properties returns the properties of a setting that a selection must cover.
func (s *setting) properties() []string {
	of := func(property string, value any) string { return fmt.Sprint(s.provider, property, value) }
	return []string{
		string(s.design), of(" ", s.protocol), of(" ", s.progress), of(" rails ", s.rails), of(" a host ", s.perHost),
		fmt.Sprint("eager ", s.eager), fmt.Sprint("loss ", s.lossPPM),
	}
}

// selectSettings selects settings that have every property. The next one is that with most
// properties which the others do not have.
func selectSettings(all []setting) (selected []setting) {
	covered := map[string]bool{}
	missing := func(s *setting) (n int) {
		for _, p := range s.properties() {
			if !covered[p] {
				n++
			}
		}
		return n
	}
	for {
		next := slices.MaxFunc(all, func(a, b setting) int { return missing(&a) - missing(&b) })
		if missing(&next) == 0 {
			return selected
		}
		selected = append(selected, next)
		for _, p := range next.properties() {
			covered[p] = true
		}
	}
}

// The selection has at most one setting for two workloads, on average.
func TestSelectedSettingsAreFew(t *testing.T) {
	if selected := selectSettings(settings()); len(selected) > len(work.All())/2 {
		t.Errorf("%d settings for %d workloads", len(selected), len(work.All()))
	}
}

// run returns the configuration of a run with the program args.
func (s *setting) run(args ...string) mpirun.Config {
	o := mpi.Options{Carrier: carrier.Config{Design: s.design}, Progress: s.progress, Collectives: s.choices}
	o.P2P.Protocol, o.P2P.EagerLimit = s.protocol, s.eager
	o.Carrier.PeerTimeout = 3 * time.Second // ranks answer faster even on a busy machine
	options, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return mpirun.Config{Args: append([]string{self()}, args...), Job: mpihost.Job{
		Ranks: s.ranks, PerHost: s.perHost, Rails: s.rails, Provider: s.provider, LossPPM: s.lossPPM, Seed: 1, Options: options, Limit: 2 * time.Minute,
	}}
}

// self returns the path of the test binary.
func self() string {
	path, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return path
}
