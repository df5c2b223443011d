// Package launch starts one process a rank and stays in touch with each: start-up
// exchange, barriers, messages between ranks, results, heart-beats, state dumps,
// orders, output and exit codes; and it ends all of them, with whatever they
// started in turn, on an error, on cancellation, after a timeout, and when the
// launcher itself is killed. Package rank is the other end, inside the processes.
//
// It knows nothing of what the ranks do, nor where: programs and jobs are opaque,
// and a caller that wants a process inside a namespace passes a Start function.
//
// # What a rank can do to its launcher
//
// Nothing but fail. Every frame from a rank is checked and has a limit, queues
// are bounded and their users wait, a rank that does not read is cut off, output
// beyond a limit is read and dropped. A rank that breaks a rule has failed, and
// the outcome says which rule.
//
// # What ends with what
//
// Each rank leads a process group of its own. When it ends, for whatever reason,
// its group is killed. Three things see to it that nothing survives the launcher:
// the kernel kills every rank when the thread that started it ends (Pdeathsig), a
// rank whose channel ends exits by itself, and a small guard process, which is
// this same program started again, kills the process groups when its pipe from
// the launcher closes. Processes that left their group are found by the mark in
// their environment (on Linux).
//
// # Threads
//
// Pdeathsig follows the thread that forks, not the process. Therefore every rank
// is started on an OS thread of its own, which lives until the rank has ended and
// is then thrown away: see Spec.Start.
//
// A Group may be used from several goroutines.
package launch
