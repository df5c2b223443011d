package perf

import "time"

// peakRate finds the highest rate of a run: of all pairs of a post and a later completion, the
// messages between them divided by the time, as perftest does. The zero value records nothing.
type peakRate struct {
	enabled   bool
	posted    marks
	completed marks
}

// maxMarks bounds the marks, and the pairs of them that rate compares.
const maxMarks = 256

// mark is the number of messages that were posted, or had completed, at a time.
type mark struct {
	messages int
	at       time.Duration
}

// marks are up to maxMarks marks of a run. If there are more, every second one is dropped.
type marks struct {
	list        []mark
	every, skip int
}

// add adds a mark, or skips it: m keeps one of every marks. When the list is full, add drops every
// second mark and doubles every.
func (m *marks) add(messages int, at time.Duration) {
	if m.skip++; m.skip < m.every {
		return
	}
	m.skip = 0
	if len(m.list) == maxMarks {
		for i := range maxMarks / 2 {
			m.list[i] = m.list[2*i]
		}
		m.list = m.list[:maxMarks/2]
		m.every = max(m.every, 1) * 2
	}
	m.list = append(m.list, mark{messages, at})
}

// reset forgets all marks.
func (p *peakRate) reset() {
	p.posted, p.completed = marks{list: p.posted.list[:0]}, marks{list: p.completed.list[:0]}
}

// post notes that a message is posted now. messages is the number posted before it.
func (p *peakRate) post(messages int, s *Side) {
	if p.enabled {
		p.posted.add(messages, s.now())
	}
}

// complete notes that this number of messages have completed by now.
func (p *peakRate) complete(messages int, s *Side) {
	if p.enabled {
		p.completed.add(messages, s.now())
	}
}

// rate returns the highest rate in messages per second; 0 if nothing was recorded.
func (p *peakRate) rate() (highest float64) {
	for _, from := range p.posted.list {
		for _, to := range p.completed.list {
			if n := to.messages - from.messages; n > 0 && to.at > from.at {
				highest = max(highest, float64(n)/(to.at-from.at).Seconds())
			}
		}
	}
	return highest
}
