// Package verbcalls makes the verbs of a sound device misbehave: between a program
// and its device, work requests, completions and attributes are changed, and what
// the device refuses is accepted, so that what the program sees is a device with a
// defect. It knows no transport and works on any verbs.Context. Defects that a
// peer can see on the wire are not here but with the engines.
//
// A defective device may be used as the one behind it may: from several goroutines,
// and in a simulated world. It is made for tests and allocates as it likes; a
// device without defects is not decorated at all.
//
// Every handle that a program gets is ours and stands for one of the sound
// device's, and what the device tells of is told by the program's own handles.
// Methods do what their namesakes in package verbs do; their comments say only what
// defects make of it.
package verbcalls
