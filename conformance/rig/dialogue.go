package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// DialogueSession is a dialogue on a new connection of the device, with a model in its first state.
// Methods end the case with [Abort] when the device violates the protocol.
type DialogueSession[Step fmt.Stringer] interface {
	// Draw returns a random step that makes sense in the state of the model. A step must make
	// sense in other states too, because earlier steps may be removed: it has a PSN relative
	// to the expected one, for example.
	Draw(*rand.Rand) Step
	// Play performs the step on the device and in the model, and compares their reactions.
	Play(Step)
	// Close frees the objects of the dialogue on the device.
	Close()
}

// Dialogue describes a case that compares a device with a reference model of its protocol in random
// dialogues: lists of steps, which are packets of a scripted peer and verb calls on the device.
//
// After each step the packets, completions and memory of the device must be those that the model
// permits. A dialogue in which they are not is shortened: steps are removed as long as device and
// model still differ. The record of the case then shows the short dialogue only.
type Dialogue[Step fmt.Stringer] struct {
	// Dialogues is the default number of dialogues in virtual time, and Steps the number of steps
	// in each. In real time there are fewer.
	Dialogues, Steps int
	Open             func(*Rig) DialogueSession[Step]
}

// Pick returns a random one of the elements, of which there must be at least one.
func Pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// Limits on the repetitions that shorten a dialogue.
const (
	maxReplays     = 300
	maxShortenTime = 20 * time.Second // on a bench in real time
)

// realTimeDivisor divides the default number of dialogues on a bench in real time.
const realTimeDivisor = 8

// Body returns the body of a case. It runs d.Dialogues dialogues, in real time fewer, or the number
// that the user asks for. At the first error it stops; if the error is a violation of the protocol
// by the device, it shortens the dialogue.
func (d Dialogue[Step]) Body() func(*conformance.Bench) error {
	return Body(func(r *Rig) {
		total := d.Dialogues
		if !r.Virtual {
			total = max(1, total/realTimeDivisor)
		}
		total = r.Schedules(total) // the number that the user asks for, if any
		for i := range total {
			steps, err := d.run(r, rand.New(rand.NewPCG(r.Rand.Uint64(), uint64(i))))
			if conformance.IsViolation(err) {
				err = d.explain(r, steps, err)
			}
			if err != nil {
				Abort(err)
			}
			r.Progress(i+1, total)
		}
	})
}

// run draws and plays the steps of a dialogue. After an error, the steps end with the one that
// caused it.
func (d Dialogue[Step]) run(r *Rig, random *rand.Rand) (steps []Step, err error) {
	err = d.inSession(r, func(session DialogueSession[Step]) {
		for range d.Steps {
			step := session.Draw(random)
			steps = append(steps, step)
			r.Note("step %d: %v", len(steps), step)
			session.Play(step)
		}
	})
	return steps, err
}

// replay plays steps in a new session.
func (d Dialogue[Step]) replay(r *Rig, steps []Step) error {
	return d.inSession(r, func(session DialogueSession[Step]) {
		for i, step := range steps {
			r.Note("step %d: %v", i+1, step)
			session.Play(step)
		}
	})
}

// inSession calls play with a new session and closes the session. It clears the record first, which
// then shows only this session. It returns the error of play or else that of Close.
func (d Dialogue[Step]) inSession(r *Rig, play func(DialogueSession[Step])) error {
	r.Record.Clear()
	return Catch(func() {
		session := d.Open(r)
		err := Catch(func() { play(session) })
		if closeErr := Catch(session.Close); err == nil {
			err = closeErr
		}
		if err != nil {
			Abort(err) // makes the outer Catch return it
		}
	})
}

// explain shortens a dialogue that ended with a violation, and replays the short one, so that the
// record shows it. It returns the violation of the short dialogue or, if the device does not repeat
// it, the original violation with all steps.
func (d Dialogue[Step]) explain(r *Rig, steps []Step, original error) error {
	began, replays := r.Now(), 0
	fails := func(candidate []Step) bool {
		if replays == maxReplays || !r.Virtual && r.Now()-began > maxShortenTime {
			return false // Shorten then removes no more steps
		}
		replays++
		return conformance.IsViolation(d.replay(r, candidate))
	}
	short := Shorten(steps, fails)
	if err := d.replay(r, short); conformance.IsViolation(err) {
		return fmt.Errorf("in a dialogue of %d steps (%d before it was shortened): %w", len(short), len(steps), err)
	}
	return errors.Join(original, fmt.Errorf("the device did this in one dialogue of %d steps and not when it was repeated: %v", len(steps), steps))
}

// Shorten returns the steps without those that a failure does not need. It removes one part at a
// time, halves first and single steps last, and keeps a part if fails is false for the rest.
func Shorten[Step any](steps []Step, fails func([]Step) bool) []Step {
	for size := max(1, len(steps)/2); ; size /= 2 {
		for from := 0; from < len(steps); {
			candidate := slices.Delete(slices.Clone(steps), from, min(from+size, len(steps)))
			if fails(candidate) {
				steps = candidate
			} else {
				from += size
			}
		}
		if size == 1 {
			return steps
		}
	}
}
