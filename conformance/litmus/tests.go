package litmus

import "github.com/fabrictest/fabrictest/verbs"

// long is the size of variables that need several packets.
const long = 3 << 10

// All tests. Each transport lists those that it must pass.
var (
	writeThenRead = Test{
		Name: "read-behind-write", Title: "A READ sees the data of the WRITE before it on the same queue pair",
		Threads: []Thread{{write("x", 1), read("x", "r0")}},
		Size:    long,
		Allowed: []string{"r0=1 x=1"},
	}
	writeThenWrite = Test{
		Name: "write-behind-write", Title: "The later of two WRITEs to one address wins",
		Threads: []Thread{{write("x", 1), write("x", 2), read("x", "r0")}},
		Allowed: []string{"r0=2 x=2"},
	}
	sendBehindWrites = Test{
		Name: "send-behind-writes", Title: "When a receive completes, the data of earlier WRITEs is in memory",
		Threads: []Thread{{write("x", 1), write("x", 2), write("y", 1), send("x", "r0"), send("y", "r1")}},
		Size:    long,
		Allowed: []string{"r0=2 r1=1 x=2 y=1"},
	}
	fencedWriteBehindRead = Test{
		Name: "fenced-write-behind-read", Title: "A READ does not see the data of a later fenced WRITE",
		Threads: []Thread{{read("x", "r0"), write("x", 1).fenced()}},
		Size:    long,
		Allowed: []string{"r0=0 x=1"},
		// Without the fence the responder may execute the WRITE before the READ.
		Unfenced: []string{"r0=1 x=1", "r0=torn x=1"},
	}
	fencedAddBehindRead = Test{
		Name: "fenced-add-behind-read", Title: "A READ does not see the effect of a later fenced atomic",
		Threads:  []Thread{{read("x", "r0"), add("x", 1, "r1").fenced()}},
		Allowed:  []string{"r0=0 r1=0 x=1"},
		Unfenced: []string{"r0=1 r1=0 x=1"},
		Needs:    verbs.CapAtomics,
	}
	addBehindWrite = Test{
		Name: "add-behind-write", Title: "An atomic sees the data of the WRITE before it on the same queue pair",
		Threads: []Thread{{write("x", 5), add("x", 1, "r0")}},
		Allowed: []string{"r0=5 x=6"},
		Needs:   verbs.CapAtomics,
	}
	readBehindAdd = Test{
		Name: "read-behind-add", Title: "A READ sees the effect of the atomic before it on the same queue pair",
		Threads: []Thread{{add("x", 1, "r0"), read("x", "r1")}},
		Allowed: []string{"r0=0 r1=1 x=1"},
		Needs:   verbs.CapAtomics,
	}
	completionBehindRead = Test{
		Name: "completion-covers-what-is-before", Title: "When a WRITE has completed, the data of the READ before it is in memory",
		Threads: []Thread{{read("x", "r0").withoutCompletion(), write("y", 1)}},
		Size:    long,
		Allowed: []string{"r0=0 x=0 y=1"},
	}
	readsInOrder = Test{
		Name: "reads-never-go-back", Title: "The later of two READs of one address does not return an older value",
		Threads: []Thread{{read("x", "r0"), read("x", "r1")}, {write("x", 1)}},
		Allowed: []string{"r0=0 r1=0 x=1", "r0=0 r1=1 x=1", "r0=1 r1=1 x=1"},
	}
	concurrentAdds = Test{
		Name: "adds-of-two-queue-pairs", Title: "Of two concurrent FETCH_ADDs neither is lost, and one returns the other's result",
		Threads: []Thread{{add("x", 1, "r0")}, {add("x", 1, "r1")}},
		Allowed: []string{"r0=0 r1=1 x=2", "r0=1 r1=0 x=2"},
		Needs:   verbs.CapAtomics,
	}
	concurrentSwaps = Test{
		Name: "swap-has-one-winner", Title: "Of two concurrent COMPARE_SWAPs of one value one succeeds, and the other returns the new value",
		Threads: []Thread{{swap("x", 0, 1, "r0")}, {swap("x", 0, 2, "r1")}},
		Allowed: []string{"r0=0 r1=1 x=1", "r0=2 r1=0 x=2"},
		Needs:   verbs.CapAtomics,
	}
)
