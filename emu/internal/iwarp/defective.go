package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What is here serves owners who misbehave on purpose, where Defects is not enough
// because the defect is the owner's.

// Presume reports every request that has left as carried out, those that wait for
// an answer too. Retired follows when they are.
func (s *Stream) Presume() {
	for r := s.first; r != nil && r != s.sending; r = r.next {
		if !r.reported {
			r.reported = true
			s.owner.Completed(r, verbs.WCSuccess)
		}
	}
}

// Expected is what the next segment of a Send must say to be taken.
func (s *Stream) Expected() (wire.MSN, uint32) { return s.theirs[wire.QueueSend], s.filled }

// Forgive goes on with a stream that ended by what the peer sent, as if the
// segment had never come, and takes the Terminate back if that has not left. What
// was under way stays failed.
func (s *Stream) Forgive() {
	if s.state != terminating {
		return
	}
	if t := s.term; t.HasDDP && !t.DDP.Control.Tagged {
		if u := &t.DDP.Untagged; u.QN < queues && u.MSN == s.theirs[u.QN] {
			s.theirs[u.QN] = u.MSN.Next() // nobody will send it again
		}
	}
	s.state, s.term, s.filled, s.parts, s.reads, s.busy = open, nil, 0, nil, nil, nobody
}
