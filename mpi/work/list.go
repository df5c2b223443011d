package work

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// All returns every workload, simple patterns first.
func All() []*Workload {
	return []*Workload{
		{
			Name: "pingpong", Title: "a message there and back between ranks 0 and 1", Paper: "Thesis §3.3",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: pingpong,
		},
		{
			Name: "bothway", Title: "windows of messages both ways between ranks 0 and 1", Paper: "Thesis §3.3, Overlap §5",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: bothway,
		},
		{
			Name: "multipair", Title: "windows of messages both ways between more and more pairs", Paper: "Thesis §3.4.2",
			MinRanks: 2, RankRule: Even, Sized: true, do: multipair,
		},
		{
			Name: "ring", Title: "a token through all ranks", Paper: "the runtime's own",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: ring,
		},
		{
			Name: "barrier", Title: "a barrier that no rank leaves before the last has entered", Paper: "the runtime's own",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: barrier,
		},
		{
			Name: "alltoall", Title: "a message from every rank to every other", Paper: "Thesis §6.6.2, Collectives ch. 6",
			MinRanks: 1, RankRule: AnyCount, Sized: true, do: alltoall,
		},
		{
			Name: "smoke", Title: "check that all ranks respond: a ring, a barrier, and an all-to-all of 8 bytes", Paper: "the runtime's own",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: smoke,
		},
		{
			Name: "star", Title: "rank 0 with every other rank, in turn: a master and its workers", Paper: "Thesis §6.6.2",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: star,
		},
		{
			Name: "neighbours", Title: "messages to both neighbours on each axis of a torus", Paper: "Thesis §6.6.2",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: neighbours,
		},
		{
			Name: "overlap", Title: "how much computation overlaps with a message", Paper: "Thesis §3.6.1, §4.4.1; Overlap §6",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: overlap,
		},
		{
			Name: "progress", Title: "whether a message progresses while the program computes", Paper: "Thesis §3.6.2; Overlap §7",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: progress,
		},
		{
			Name: "spectrum", Title: "a ping-pong from buffers of which some are used more often", Paper: "Thesis §5.5.1, Fig. 5.6",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: spectrum,
		},
		{
			Name: "putget", Title: "puts and gets between ranks 0 and 1", Paper: "Thesis §5.5.1, Fig. 5.7",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: putget,
		},
		{
			Name: "exchange1", Title: "produce and consume, receive posted before the send", Paper: "Thesis §4.4.1, Fig. 4.15",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: exchange1,
		},
		{
			Name: "exchange2", Title: "produce and consume, receive posted after the send", Paper: "Thesis §4.4.1, Fig. 4.15",
			MinRanks: 2, RankRule: AnyCount, Sized: true, do: exchange2,
		},
		{
			Name: "cg", Title: "conjugate gradient on a sparse matrix (NPB CG)", Paper: "Thesis §4.3.1, Fig. 4.18, Tables 5.1 and 6.1",
			MinRanks: 1, RankRule: PowerOfTwo, do: conjugateGradient,
		},
		{
			Name: "bt", Title: "lines of 5 × 5 blocks on a multipartition (NPB BT)", Paper: "Thesis §4.4.2, Fig. 4.18; Survey §3.2, Table 1",
			MinRanks: 4, RankRule: Square, unfit: adiUnfit, do: blockTridiagonal,
		},
		{
			Name: "sp", Title: "lines of five diagonals on a multipartition (NPB SP)", Paper: "Thesis §4.4.2, Fig. 4.18; Survey §3.2, Table 1",
			MinRanks: 4, RankRule: Square, unfit: adiUnfit, do: scalarPentadiagonal,
		},
		{
			Name: "lu", Title: "pipelined sweeps over a grid, receives of any source (NPB LU)", Paper: "Thesis §4.3.1, Fig. 4.18, Tables 5.1 and 6.1; Survey Table 1",
			MinRanks: 1, RankRule: AnyCount, unfit: luUnfit, do: wavefront,
		},
		{
			Name: "mg", Title: "V-cycles on a periodic grid (NPB MG)", Paper: "Survey §3.2, Table 1; Thesis Table 6.1",
			MinRanks: 1, RankRule: PowerOfTwo, unfit: mgUnfit, do: multigrid,
		},
		{
			Name: "ft", Title: "diffusion by Fourier transforms in three dimensions (NPB FT)", Paper: "Survey §3.2, Table 1; Collectives §6.5.3",
			MinRanks: 1, RankRule: PowerOfTwo, unfit: ftUnfit, do: fourier,
		},
		{
			Name: "is", Title: "bucket sort of integers (NPB IS)", Paper: "Survey §3.2, Table 1",
			MinRanks: 1, RankRule: AnyCount, do: integerSort,
		},
		{
			Name: "radix", Title: "radix sort of integers (RADIX)", Paper: "Thesis §4.4.2, Fig. 4.18, §6.6.2; Collectives §6.5.3",
			MinRanks: 1, RankRule: AnyCount, do: radixSort,
		},
		{
			Name: "nbody", Title: "particles that attract each other, passed on in a ring (N-BODY)", Paper: "Collectives §4.3, §6.5.3",
			MinRanks: 1, RankRule: AnyCount, do: nbody,
		},
		{
			Name: "amg", Title: "levels with more and more partners (AMG2006)", Paper: "Thesis Tables 5.1 and 5.4, §5.5.2",
			MinRanks: 1, RankRule: AnyCount, do: algebraicMultigrid,
		},
		{
			Name: "smg", Title: "levels of which the coarsest ties all ranks (SMG2000)", Paper: "Thesis §6.6.2, Table 6.1",
			MinRanks: 1, RankRule: AnyCount, do: semicoarsening,
		},
		{
			Name: "superlu", Title: "message-driven solution of a sparse triangular system (SuperLU)", Paper: "Survey §3.3, Table 2, Fig. 7",
			MinRanks: 1, RankRule: AnyCount, do: triangularSolve,
		},
		{
			Name: "hpl", Title: "elimination with pivots, panels passed on in a ring (HPL)", Paper: "Survey §3.5, Fig. 11, Table 1",
			MinRanks: 1, RankRule: AnyCount, do: linpack,
		},
	}
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
