package conclavegocron

// OnceAt is Once with a clock.
var OnceAt = onceAt
