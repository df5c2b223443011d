// Package sim is a world in which everything that happens follows from a seed:
// time is virtual, events run in order of (time, sequence), and the programs of
// the ranks are coroutines of which exactly one runs at a time. Two runs with
// the same seed give the same trace, byte for byte, on any machine and with any
// number of processors.
//
// Three kinds of things live in a world:
//
//   - Handlers, which an event wakes at its time ([World.At], [Timer]). NICs,
//     links and schedules are handlers. They never block.
//   - Programs ([World.Go]), which block: each call that waits parks the
//     coroutine and lets the world decide what runs next.
//   - Networks ([Net]): ports joined by a cable, a switch, or several switches
//     with trunks between them, carrying datagrams and byte streams, with the
//     impairments that package impair describes.
//
// Much of it can be changed while it runs: links go down and come up, networks
// divide and heal, impairments and rates are replaced, programs are paused or
// killed.
//
// All events of an instant run before the programs of that instant, so programs
// that become runnable at the same time compete, and [World.Choose] decides.
// Chance of every other kind (loss, jitter, where a stream is cut) comes from
// [World.Rand], one stream a name, so a component added to a world does not
// change what happens to the others.
//
// The package knows no protocol and no real time; it opens no socket and starts
// no thread. A world and everything in it belongs to the one goroutine that
// calls Run: nothing here is safe for concurrent use. A goroutine that a program
// starts panics with a [*WrongGoroutineError] when it calls into the world.
package sim
