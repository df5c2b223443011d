package work

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// All returns every workload, simple patterns first.
func All() []*Workload {
	const own = "the runtime's own"
	return []*Workload{
		pattern("pingpong", "a message there and back between ranks 0 and 1", "Rashti 2010 §3.3", pingpong),
		pattern("bothway", "windows of messages both ways between ranks 0 and 1", "Rashti 2010 §3.3, Rashti 2007 §5", bothway),
		pattern("multipair", "windows of messages both ways between more and more pairs", "Rashti 2010 §3.4.2",
			multipair).onRanks(2, Even),
		pattern("ring", "a token through all ranks", own, ring),
		pattern("barrier", "a barrier that no rank leaves before the last has entered", own, barrier),
		pattern("alltoall", "a message from every rank to every other", "Rashti 2010 §6.6.2, Qian 2010 ch. 6",
			alltoall).onRanks(1, AnyCount),
		pattern("smoke", "check that all ranks respond: a ring, a barrier, and an all-to-all of 8 bytes", own, smoke),
		pattern("star", "rank 0 with every other rank, in turn: a master and its workers", "Rashti 2010 §6.6.2", star),
		pattern("neighbours", "messages to both neighbours on each axis of a torus", "Rashti 2010 §6.6.2", neighbours),
		pattern("overlap", "how much computation overlaps with a message", "Rashti 2010 §3.6.1, §4.4.1; Rashti 2007 §6", overlap),
		pattern("progress", "whether a message progresses while the program computes", "Rashti 2010 §3.6.2; Rashti 2007 §7", progress),
		pattern("spectrum", "a ping-pong from buffers of which some are used more often", "Rashti 2010 §5.5.1, Fig. 5.6", spectrum),
		pattern("putget", "puts and gets between ranks 0 and 1", "Rashti 2010 §5.5.1, Fig. 5.7", putget),
		pattern("exchange1", "produce and consume, receive posted before the send", "Rashti 2010 §4.4.1, Fig. 4.15", exchange1),
		pattern("exchange2", "produce and consume, receive posted after the send", "Rashti 2010 §4.4.1, Fig. 4.15", exchange2),
		application("cg", "conjugate gradient on a sparse matrix (NPB CG)",
			"Rashti 2010 §4.3.1, Fig. 4.18, Tables 5.1 and 6.1", conjugateGradient).onRanks(1, PowerOfTwo),
		application("bt", "lines of 5 × 5 blocks on a multipartition (NPB BT)",
			"Rashti 2010 §4.4.2, Fig. 4.18; Sur 2006 §3.2, Table 1", blockTridiagonal).onRanks(4, Square).unless(adiUnfit),
		application("sp", "lines of five diagonals on a multipartition (NPB SP)",
			"Rashti 2010 §4.4.2, Fig. 4.18; Sur 2006 §3.2, Table 1", scalarPentadiagonal).onRanks(4, Square).unless(adiUnfit),
		application("lu", "pipelined sweeps over a grid, receives of any source (NPB LU)",
			"Rashti 2010 §4.3.1, Fig. 4.18, Tables 5.1 and 6.1; Sur 2006 Table 1", wavefront).unless(luUnfit),
		application("mg", "V-cycles on a periodic grid (NPB MG)",
			"Sur 2006 §3.2, Table 1; Rashti 2010 Table 6.1", multigrid).onRanks(1, PowerOfTwo).unless(mgUnfit),
		application("ft", "diffusion by Fourier transforms in three dimensions (NPB FT)",
			"Sur 2006 §3.2, Table 1; Qian 2010 §6.5.3", fourier).onRanks(1, PowerOfTwo).unless(ftUnfit),
		application("is", "bucket sort of integers (NPB IS)", "Sur 2006 §3.2, Table 1", integerSort),
		application("radix", "radix sort of integers (RADIX)",
			"Rashti 2010 §4.4.2, Fig. 4.18, §6.6.2; Qian 2010 §6.5.3", radixSort),
		application("nbody", "particles that attract each other, passed on in a ring (N-BODY)",
			"Qian 2010 §4.3, §6.5.3", nbody),
		application("amg", "levels with more and more partners (AMG2006)", "Rashti 2010 Tables 5.1 and 5.4, §5.5.2", algebraicMultigrid),
		application("smg", "levels of which the coarsest ties all ranks (SMG2000)", "Rashti 2010 §6.6.2, Table 6.1", semicoarsening),
		application("superlu", "message-driven solution of a sparse triangular system (SuperLU)",
			"Sur 2006 §3.3, Table 2, Fig. 7", triangularSolve),
		application("hpl", "elimination with pivots, panels passed on in a ring (HPL)", "Sur 2006 §3.5, Fig. 11, Table 1", linpack),
	}
}

// pattern returns a workload for two or more ranks, whose messages may have any size.
func pattern(name, title, paper string, do func(*job)) *Workload {
	return &Workload{Name: name, Title: title, Paper: paper, MinRanks: 2, RankRule: AnyCount, Sized: true, do: do}
}

// application returns a workload for any number of ranks, whose class determines the message sizes.
func application(name, title, paper string, do func(*job)) *Workload {
	return &Workload{Name: name, Title: title, Paper: paper, MinRanks: 1, RankRule: AnyCount, do: do}
}

// onRanks restricts the number of ranks of a workload.
func (wl *Workload) onRanks(least int, rule RankRule) *Workload {
	wl.MinRanks, wl.RankRule = least, rule
	return wl
}

// unless sets Workload.unfit, which says why a number of ranks cannot share the problem of a class.
func (wl *Workload) unless(unfit func(c Class, ranks int) string) *Workload {
	wl.unfit = unfit
	return wl
}

// Find returns the workload with a name. The error suggests similar names.
func Find(name string) (*Workload, error) {
	var names []string
	for _, w := range All() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	if guesses := cmdline.Similar(name, names); len(guesses) > 0 {
		return nil, fmt.Errorf("no workload %q; is it %s?", name, strings.Join(guesses, " or "))
	}
	return nil, fmt.Errorf("no workload %q; there are %s", name, strings.Join(names, ", "))
}
