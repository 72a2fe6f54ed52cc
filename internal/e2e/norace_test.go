//go:build !race

package e2e_test

// raceDetector says that the program is to be built with the race detector, as
// its tests are.
const raceDetector = false
