// Package rank is the inside of a process that package launch started: its place
// among the others, messages to and from them, barriers, and a way to tell the
// launcher how it is getting on.
//
//	conn, err := rank.Join()
//	if errors.Is(err, rank.ErrNotLaunched) { … run alone … }
//	conn.OnDump(program.Status)
//	err = program.Run(conn)
//	conn.Report(result)
//	conn.Close(err)
//
// The channel is for start-up, results and supervision, not for bulk: messages
// are copied by the launcher, in order, and none is lost while both sides live.
//
// All methods of a Conn may be called from several goroutines. Goroutines of the
// Conn's own answer the launcher's heart-beats and requests, so a program that
// computes or waits is never taken for a dead one; only a process that stands
// still as a whole is. When the launcher dies, the process ends (see Options).
package rank
